// Warps and neighbourhood ops for the lanes of a CUDA thread.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_BLOCK_SOURCES_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_BLOCK_SOURCES_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_BLOCK_SOURCES_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_BLOCK_SOURCES_H_
#endif

#include <cstdint>

#include "cuda/kernels/chain/block_lanes.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/chain_warps.h"
#include "cuda/kernels/chain/host_sources.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/op_table.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// Loads channels of the pixel whose first one is element `at`; those of a pixel
// outside the image are 0.
template <int kNumChannels, typename Team>
class PlanePixels {
 public:
  static constexpr int kChannels = kNumChannels;

  DATASETD_HOST_DEVICE PlanePixels(const ChainImage& image, int first_c)
      : stride_(image.channel_stride),
        data_(reinterpret_cast<const float*>(image.data) + first_c * stride_) {}

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void Load(
      bool is_inside, int32_t at, float (&to)[kChannels]) const {
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      to[c] = is_inside ? data_[at + c * stride_] : 0.0f;
    }
  }

 private:
  int64_t stride_;
  const float* data_;
};

// The same of resident bytes, which are finite: those of a pixel outside are
// undefined.
template <typename Team>
class RgbPixels {
 public:
  static constexpr int kChannels = 3;

  DATASETD_HOST_DEVICE explicit RgbPixels(const ChainImage& image)
      : data_(image.data) {}

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void Load(
      bool is_inside, int32_t at, float (&to)[kChannels]) const {
    datasetd::LoadRgb(data_ + (is_inside ? at : 0), to);
  }

 private:
  const uint8_t* data_;
};

// Where the lanes come from: affine and projective maps, in the same code.
template <typename Team>
class WarpMap {
 public:
  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE WarpMap(const StepDraw& drawn,
                                                     float y)
      : is_projective_(IsProjective(drawn.kind)) {
    const auto* const matrix = drawn.As<WarpMatrix>().row;
    DATASETD_UNROLL
    for (int i = 0; i < 2; ++i) {
      start_[i] = matrix[i][1] * y + matrix[i][2];
      step_[i] = matrix[i][0];
    }
    start_[2] = step_[2] = 0.0f;
    if (!is_projective_) return;
    start_[2] = matrix[2][1] * y + matrix[2][2];
    step_[2] = matrix[2][0];
  }

  DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void Find(float x, float* at_x,
                                                       float* at_y) const {
    *at_x = step_[0] * x + start_[0];
    *at_y = step_[1] * x + start_[1];
    if (!is_projective_) return;
    const float w = step_[2] * x + start_[2];
    *at_x = *at_x / w;
    *at_y = *at_y / w;
  }

 private:
  bool is_projective_;
  float start_[3];
  float step_[3];
};

// Samples `pixels` of an image at the lanes' sources `at`, with the fills of
// its channels. Pixels outside have weight 0.
template <typename Team, typename Pixels>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void WarpPixels(
    const ChainImage& image, const Pixels& pixels, const WarpParams& params,
    const float* fills, const float (&at)[2][Team::kLanes],
    float (&made)[Pixels::kChannels][Team::kLanes]) {
  const auto height = static_cast<uint32_t>(image.height);
  const auto width = static_cast<uint32_t>(image.width);
  const int32_t row_stride = image.row_stride;
  const int32_t stride = image.pixel_stride;
  const bool is_bilinear = params.is_bilinear;
  const bool has_fill = params.has_fill;
  DATASETD_UNROLL
  for (int k = 0; k < Team::kLanes; ++k) {
    const float at_x = at[0][k];
    const float at_y = at[1][k];
    float value[Pixels::kChannels];
    if (!is_bilinear) {
      const auto column = static_cast<int32_t>(RoundHalfEven(at_x));
      const auto row = static_cast<int32_t>(RoundHalfEven(at_y));
      const bool is_inside = static_cast<uint32_t>(row) < height &&
                             static_cast<uint32_t>(column) < width;
      pixels.Load(is_inside, row * row_stride + column * stride, value);
      DATASETD_UNROLL
      for (int c = 0; c < Pixels::kChannels; ++c) {
        const float fill = has_fill ? fills[c] : 0.0f;
        made[c][k] = is_inside ? value[c] : fill;
      }
      continue;
    }
    const float floor_x = Floor(at_x);
    const float floor_y = Floor(at_y);
    const float part_x = at_x - floor_x;
    const float part_y = at_y - floor_y;
    const auto column = static_cast<int32_t>(floor_x);
    const auto row = static_cast<int32_t>(floor_y);
    const bool has_column[2] = {static_cast<uint32_t>(column) < width,
                                static_cast<uint32_t>(column + 1) < width};
    const bool has_row[2] = {static_cast<uint32_t>(row) < height,
                             static_cast<uint32_t>(row + 1) < height};
    const float weight_x[2] = {has_column[0] ? 1.0f - part_x : 0.0f,
                               has_column[1] ? part_x : 0.0f};
    const float weight_y[2] = {has_row[0] ? 1.0f - part_y : 0.0f,
                               has_row[1] ? part_y : 0.0f};
    const int32_t first = row * row_stride + column * stride;
    float sum[Pixels::kChannels] = {};
    float mask = 0.0f;
    DATASETD_UNROLL
    for (int corner = 0; corner < 4; ++corner) {
      const int below = corner / 2;
      const int right = corner % 2;
      const float weight = weight_y[below] * weight_x[right];
      mask = corner == 0 ? weight : mask + weight;
      pixels.Load(has_row[below] && has_column[right],
                  first + below * row_stride + right * stride, value);
      DATASETD_UNROLL
      for (int c = 0; c < Pixels::kChannels; ++c) {
        const float product = weight * value[c];
        sum[c] = corner == 0 ? product : sum[c] + product;
      }
    }
    const float rest = 1.0f - mask;
    DATASETD_UNROLL
    for (int c = 0; c < Pixels::kChannels; ++c) {
      const float filled = mask * sum[c] + rest * fills[c];
      made[c][k] = has_fill ? filled : sum[c];
    }
  }
}

template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void WarpBlock(
    const ChainImage& image, const WarpParams& params, const StepDraw& drawn,
    Lanes<Team>* lanes) {
  const WarpMap<Team> map(drawn,
                          static_cast<float>(lanes->y) - params.out_middle[1]);
  float at[2][Team::kLanes];
  DATASETD_UNROLL
  for (int k = 0; k < Team::kLanes; ++k) {
    const float x = static_cast<float>(lanes->X(k)) - params.out_middle[0];
    map.Find(x, &at[0][k], &at[1][k]);
    at[0][k] = NearImage<Team>(at[0][k], image.width);
    at[1][k] = NearImage<Team>(at[1][k], image.height);
  }
  if (!image.is_scratch) {
    float made[3][Team::kLanes];
    WarpPixels<Team>(image, RgbPixels<Team>(image), params, params.fill, at,
                     made);
    SetLanes(made, 0, lanes);
    return;
  }
  MakeChannels(lanes, [&]<int kChannels>(float(&made)[kChannels][Team::kLanes],
                                         int first_c) {
    WarpPixels<Team>(image, PlanePixels<kChannels, Team>(image, first_c),
                     params, params.fill + first_c, at, made);
  });
}

// Returns channel c of the sharpened pixel (y, x).
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_NOINLINE float SharpenPixel(
    const ChainImage& image, const AdjustSharpnessDraw& draw, int c, int32_t y,
    int32_t x) {
  const float* const plane =
      reinterpret_cast<const float*>(image.data) + c * image.channel_stride;
  return ApplyAdjustSharpness(draw, plane, image.height, image.width, y, x);
}

template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void SharpenBlock(
    const ChainImage& image, const AdjustSharpnessDraw& draw,
    Lanes<Team>* lanes) {
  ClearLanes(lanes);
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      lanes->pixel[c][k] = SharpenPixel<Team>(
          image, draw, c, lanes->y, lanes->X(k < lanes->count ? k : 0));
    }
  }
}

// Loads the four pixels from column `at` on, a multiple of 4, of kChannels rows
// that are mirrored at their beginning or at their end.
template <bool kIsBefore, int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void LoadMirrored(
    const float* const (&rows)[kChannels], int32_t at, int32_t width,
    float (&to)[kChannels][Team::kLanes]) {
  if (width % Team::kLanes == 0 && at >= 0 && at < width) {
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      LoadNeighbours<Team>(rows[c] + at, /*is_vector=*/true, to[c]);
    }
    return;
  }
  DATASETD_UNROLL
  for (int k = 0; k < Team::kLanes; ++k) {
    // Outside if no lane of the image needs it.
    int32_t column;
    if constexpr (kIsBefore) {
      column = MirroredBefore(at + k);
      column = column < width ? column : width - 1;
    } else {
      column = MirroredAfter(at + k, width);
      column = column > 0 ? column : 0;
    }
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      to[c][k] = rows[c][column];
    }
  }
}

// Blurs kChannels planes along their rows. A lane's neighbours are those of the
// lane beside it, but for one on either side: four taps take as many pixels on
// either side, whole vectors.
template <int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void BlurBlockX(
    const ChainImage& image, const GaussianBlurDraw& draw, const float* planes,
    const Lanes<Team>& lanes, float (&sum)[kChannels][Team::kLanes]) {
  constexpr int kLanes = Team::kLanes;
  const int32_t width = image.width;
  const int32_t x = lanes.first_x;
  const float* rows[kChannels];
  DATASETD_UNROLL
  for (int c = 0; c < kChannels; ++c) {
    rows[c] = planes + c * image.channel_stride + lanes.y * width;
  }
  LoadMirrored<false, kChannels, Team>(rows, x, width, sum);
  // Column p is at p - x modulo kLanes.
  float before[kChannels][kLanes];
  float after[kChannels][kLanes];
  DATASETD_UNROLL
  for (int c = 0; c < kChannels; ++c) {
    DATASETD_UNROLL
    for (int k = 0; k < kLanes; ++k) before[c][k] = after[c][k] = sum[c][k];
  }
  const int radius = draw.radius_x;
  for (int reach = kLanes; reach - kLanes < radius; reach += kLanes) {
    float low[kChannels][kLanes];
    float high[kChannels][kLanes];
    LoadMirrored<true, kChannels, Team>(rows, x - reach, width, low);
    LoadMirrored<false, kChannels, Team>(rows, x + reach, width, high);
    DATASETD_UNROLL
    for (int i = 0; i < kLanes; ++i) {
      const int distance = reach - kLanes + 1 + i;
      if (distance > radius) continue;
      const float weight = draw.weights[distance - 1];
      DATASETD_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        before[c][kLanes - 1 - i] = low[c][kLanes - 1 - i];
        after[c][i] = high[c][i];
        DATASETD_UNROLL
        for (int k = 0; k < kLanes; ++k) {
          sum[c][k] += weight * (before[c][(k + kLanes - 1 - i) % kLanes] +
                                 after[c][(k + 1 + i) % kLanes]);
        }
      }
    }
  }
  DATASETD_UNROLL
  for (int c = 0; c < kChannels; ++c) {
    DATASETD_UNROLL
    for (int k = 0; k < kLanes; ++k) sum[c][k] = sum[c][k] * draw.norm_x;
  }
}

// Blurs kChannels planes down their columns.
template <int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void BlurBlockY(
    const ChainImage& image, const GaussianBlurDraw& draw, const float* planes,
    const Lanes<Team>& lanes, float (&sum)[kChannels][Team::kLanes]) {
  constexpr int kLanes = Team::kLanes;
  const int32_t height = image.height;
  const int32_t width = image.width;
  const int32_t y = lanes.y;
  const bool is_vector = width % kLanes == 0;
  const float* column[kChannels];
  DATASETD_UNROLL
  for (int c = 0; c < kChannels; ++c) {
    column[c] = planes + c * image.channel_stride + lanes.first_x;
    LoadNeighbours<Team>(column[c] + y * width, is_vector, sum[c]);
  }
  for (int distance = 1; distance <= draw.radius_y; ++distance) {
    const float weight = draw.weights[distance - 1];
    const int32_t low = MirroredBefore(y - distance) * width;
    const int32_t high = MirroredAfter(y + distance, height) * width;
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      float before[kLanes];
      float after[kLanes];
      LoadNeighbours<Team>(column[c] + low, is_vector, before);
      LoadNeighbours<Team>(column[c] + high, is_vector, after);
      DATASETD_UNROLL
      for (int k = 0; k < kLanes; ++k) {
        sum[c][k] += weight * (before[k] + after[k]);
      }
    }
  }
  DATASETD_UNROLL
  for (int c = 0; c < kChannels; ++c) {
    DATASETD_UNROLL
    for (int k = 0; k < kLanes; ++k) sum[c][k] = sum[c][k] * draw.norm_y;
  }
}

template <bool kIsX, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void BlurBlock(
    const ChainImage& image, const GaussianBlurDraw& draw, Lanes<Team>* lanes) {
  MakeChannels(lanes, [&](auto& made, int first_c) {
    const float* const planes = reinterpret_cast<const float*>(image.data) +
                                first_c * image.channel_stride;
    if constexpr (kIsX) {
      BlurBlockX(image, draw, planes, *lanes, made);
    } else {
      BlurBlockY(image, draw, planes, *lanes, made);
    }
  });
}

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_BLOCK_SOURCES_H_
