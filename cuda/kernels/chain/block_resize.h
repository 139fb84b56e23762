// The sums of a resize for the lanes of a CUDA thread: see resize_passes.h.
//
// A sum starts with -0, to which adding a number gives the number's own bits.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_BLOCK_RESIZE_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_BLOCK_RESIZE_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_BLOCK_RESIZE_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_BLOCK_RESIZE_H_
#endif

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/chain/block_lanes.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/resize_passes.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/host_device.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// Loads channels first_c .. first_c + kChannels of the pixel whose first one is
// element `at`.
template <ElementKind kKind, typename Team, int kChannels>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void LoadPixelAs(
    const ChainImage& image, int32_t at, int first_c, float (&to)[kChannels]) {
  if constexpr (kKind == ElementKind::kRgbBytes) {
    datasetd::LoadRgb(image.data + at, to);
  } else {
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      const int64_t element = at + (first_c + c) * image.channel_stride;
      to[c] = kKind == ElementKind::kPlanes
                  ? LoadElement<Dtype::kFloat32>(image.data, element)
                  : LoadElementOf<Team>(image.dtype, image.data, element);
    }
  }
}

template <int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void BeginSums(
    float (&sum)[kChannels][Team::kLanes]) {
  DATASETD_UNROLL
  for (int c = 0; c < kChannels; ++c) {
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) sum[c][k] = -0.0f;
  }
}

// Sums along a row of an image, whose window begins at element `start`, for the
// coordinates that the lanes `run` from x on are.
template <ElementKind kKind, int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void SumImageRow(
    const ChainImage& image, int32_t start, int first_c, const AxisTaps& taps,
    int32_t x, const LaneRun& run, float (&sum)[kChannels][Team::kLanes]) {
  BeginSums<kChannels, Team>(sum);
  const int32_t* index = taps.index + x;
  const float* weight = taps.weight + x;
  DATASETD_NO_UNROLL
  for (int32_t t = 0; t < taps.count; ++t) {
    int32_t column[Team::kLanes];
    float factor[Team::kLanes];
    LoadLanes<Team>(index, run, column);
    LoadLanes<Team>(weight, run, factor);
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      float pixel[kChannels];
      LoadPixelAs<kKind, Team>(
          image,
          start + column[k] * (kKind == ElementKind::kRgbBytes ? 3
                               : kKind == ElementKind::kPlanes
                                   ? 1
                                   : image.pixel_stride),
          first_c, pixel);
      DATASETD_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        sum[c][k] = sum[c][k] + factor[k] * pixel[c];
      }
    }
    index += taps.stride;
    weight += taps.stride;
  }
}

// Sums down the `count` columns of an image from element `start` of its first
// row on, for coordinate y.
template <ElementKind kKind, int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void SumImageColumns(
    const ChainImage& image, int32_t start, int first_c, const AxisTaps& taps,
    int32_t y, int count, float (&sum)[kChannels][Team::kLanes]) {
  BeginSums<kChannels, Team>(sum);
  const int32_t* index = taps.index + y;
  const float* weight = taps.weight + y;
  DATASETD_NO_UNROLL
  for (int32_t t = 0; t < taps.count; ++t) {
    const float factor = *weight;
    const int32_t at = start + *index * image.row_stride;
    if constexpr (kKind == ElementKind::kRgbBytes) {
      float pixel[3][Team::kLanes];
      LoadRgbLanes<Team>(image, at, count, pixel);
      DATASETD_UNROLL
      for (int c = 0; c < 3; ++c) {
        DATASETD_UNROLL
        for (int k = 0; k < Team::kLanes; ++k) {
          sum[c][k] = sum[c][k] + factor * pixel[c][k];
        }
      }
    } else {
      DATASETD_UNROLL
      for (int k = 0; k < Team::kLanes; ++k) {
        float pixel[kChannels];
        LoadPixelAs<kKind, Team>(image,
                                 at + (k < count ? k : 0) * image.pixel_stride,
                                 first_c, pixel);
        DATASETD_UNROLL
        for (int c = 0; c < kChannels; ++c) {
          sum[c][k] = sum[c][k] + factor * pixel[c];
        }
      }
    }
    index += taps.stride;
    weight += taps.stride;
  }
}

// Sums along the buffered row `row` of kChannels planes; otherwise as
// SumImageRow.
template <int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void SumBlockRow(
    const float* row, int64_t plane_stride, const AxisTaps& taps, int32_t x,
    const LaneRun& run, float (&sum)[kChannels][Team::kLanes]) {
  BeginSums<kChannels, Team>(sum);
  const float* plane[kChannels];
  DATASETD_UNROLL
  for (int c = 0; c < kChannels; ++c) plane[c] = row + c * plane_stride;
  const int32_t* index = taps.index + x;
  const float* weight = taps.weight + x;
  DATASETD_NO_UNROLL
  for (int32_t t = 0; t < taps.count; ++t) {
    int32_t column[Team::kLanes];
    float factor[Team::kLanes];
    LoadLanes<Team>(index, run, column);
    LoadLanes<Team>(weight, run, factor);
    DATASETD_UNROLL
    for (int k = 0; k < Team::kLanes; ++k) {
      DATASETD_UNROLL
      for (int c = 0; c < kChannels; ++c) {
        sum[c][k] = sum[c][k] + factor[k] * plane[c][column[k]];
      }
    }
    index += taps.stride;
    weight += taps.stride;
  }
}

// Sums down the columns that neighbouring lanes from element `at` of buffered
// rows on are, for coordinate y. `is_vector`: as in LaneRun.
template <int kChannels, typename Team>
DATASETD_HOST_DEVICE DATASETD_FORCE_INLINE void SumBlockColumns(
    const RowWindow& rows, const AxisTaps& taps, int32_t y, int64_t at,
    bool is_vector, float (&sum)[kChannels][Team::kLanes]) {
  BeginSums<kChannels, Team>(sum);
  const int32_t* index = taps.index + y;
  const float* weight = taps.weight + y;
  DATASETD_NO_UNROLL
  for (int32_t t = 0; t < taps.count; ++t) {
    const float factor = *weight;
    const float* const row = rows.Row(*index) + at;
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      float value[Team::kLanes];
      LoadNeighbours<Team>(row + c * rows.plane_stride, is_vector, value);
      DATASETD_UNROLL
      for (int k = 0; k < Team::kLanes; ++k) {
        sum[c][k] = sum[c][k] + factor * value[k];
      }
    }
    index += taps.stride;
    weight += taps.stride;
  }
}

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_BLOCK_RESIZE_H_
