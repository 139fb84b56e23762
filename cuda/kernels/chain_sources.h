// Where the pixels of a sweep come from: lanes made of an image by integer
// moves, a resize, an affine map or a neighbourhood.
//
// All of it are templates over the team, as in chain_lanes.h.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_SOURCES_H_
#define DATASETD_CUDA_KERNELS_CHAIN_SOURCES_H_

#include <cstdint>

#include "cuda/dtype.h"
#include "cuda/kernels/chain_lanes.h"
#include "cuda/kernels/chain_state.h"
#include "cuda/kernels/elementary.h"
#include "cuda/kernels/host_device.h"
#include "cuda/kernels/move.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/params.h"

namespace datasetd {

// Column x of row `row` comes from column first + x, or from the columns in
// `map` where that is not null.
template <Dtype kDtype, typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN inline void GatherRow(
    const ChainImage& image, int32_t row, const int32_t* map, int32_t first,
    int direction, Lanes<Team>* lanes) {
  const int count = lanes->count;
  const int64_t row_start = static_cast<int64_t>(row) * image.row_stride;
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    const int64_t start = row_start + c * image.channel_stride;
    float* const pixel = lanes->pixel[c];
    if (map != nullptr) {
      const int32_t step = image.pixel_stride;
      for (int k = 0; k < count; ++k) {
        const int32_t column = map[k] < 0 ? 0 : map[k];
        pixel[k] = LoadElement<kDtype>(image.data, start + column * step);
      }
    } else if (image.pixel_stride == 1 && direction > 0) {
      for (int k = 0; k < count; ++k) {
        pixel[k] = LoadElement<kDtype>(image.data, start + first + k);
      }
    } else if (image.pixel_stride == 3 && direction > 0) {
      for (int k = 0; k < count; ++k) {
        pixel[k] = LoadElement<kDtype>(image.data, start + 3 * (first + k));
      }
    } else {
      const int32_t step = image.pixel_stride;
      for (int k = 0; k < count; ++k) {
        pixel[k] = LoadElement<kDtype>(image.data,
                                       start + (first + direction * k) * step);
      }
    }
  }
}

// Lanes by the maps of a chain of moves: `row` is the row's entry of the one,
// and map_x the other, or null: each column is its own.
template <typename Team>
DATASETD_HOST_DEVICE inline void GatherLanes(const ChainImage& image,
                                             int32_t row, const int32_t* map_x,
                                             bool has_fill,
                                             Lanes<Team>* lanes) {
  if (IsFill(row)) row = 0;
  const int32_t* map = map_x;
  int32_t first = lanes->first_x;
  int direction = 1;
  if (map != nullptr) map += lanes->first_x;
  if (map == nullptr) {
    // As it is.
  } else if (lanes->count == 1) {
    first = map[0] < 0 ? 0 : map[0];
    map = nullptr;
  } else if (!has_fill) {
    // Maps without fill go in steps of -1, 0 and 1.
    const int32_t span = map[lanes->count - 1] - map[0];
    if (span == lanes->count - 1 || span == 1 - lanes->count) {
      first = map[0];
      direction = span > 0 ? 1 : -1;
      map = nullptr;
    }
  }
  switch (image.dtype) {
    case Dtype::kUint8:
      GatherRow<Dtype::kUint8>(image, row, map, first, direction, lanes);
      break;
    case Dtype::kFloat16:
      GatherRow<Dtype::kFloat16>(image, row, map, first, direction, lanes);
      break;
    case Dtype::kBfloat16:
      GatherRow<Dtype::kBfloat16>(image, row, map, first, direction, lanes);
      break;
    default:
      GatherRow<Dtype::kFloat32>(image, row, map, first, direction, lanes);
      break;
  }
}

// The first pass of a resize: elements first .. first + count of the weighted
// sum of some rows. Tap t is row index[t * stride] with weight[t * stride].
template <Dtype kDtype, typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN inline void SumRows(
    const ChainImage& image, int64_t start, int count, const int32_t* index,
    const float* weight, int num_taps, int64_t stride, float* to) {
  const auto row = [&](int t) {
    return static_cast<int64_t>(index[t * stride]) * image.row_stride + start;
  };
  // A single lane stays in a register.
  float single = 0.0f;
  float* __restrict__ const sum = Team::kLanes == 1 ? &single : to;
  const float factor = weight[0];
  const int64_t row0 = row(0);
  if (num_taps == 1) {
    for (int k = 0; k < count; ++k) {
      sum[k] = factor * LoadElement<kDtype>(image.data, row0 + k);
    }
  } else {
    const float factor1 = weight[stride];
    const int64_t row1 = row(1);
    for (int k = 0; k < count; ++k) {
      sum[k] = factor * LoadElement<kDtype>(image.data, row0 + k) +
               factor1 * LoadElement<kDtype>(image.data, row1 + k);
    }
  }
  for (int t = 2; t < num_taps; ++t) {
    const float factor_t = weight[t * stride];
    const int64_t row_t = row(t);
    for (int k = 0; k < count; ++k) {
      sum[k] = sum[k] + factor_t * LoadElement<kDtype>(image.data, row_t + k);
    }
  }
  if (Team::kLanes == 1) *to = single;
}

// The second pass: lanes as weighted sums along a row. Tap t of column x is
// element index[t * stride + x] of the row, plus channel_stride per channel.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN inline void SumColumns(
    const float* row, int64_t channel_stride, const int32_t* index,
    const float* weight, int num_taps, int64_t stride, float clamp,
    Lanes<Team>* lanes) {
  const int count = lanes->count;
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    const float* const from = row + c * channel_stride;
    const int32_t* tap_index = index + lanes->first_x;
    const float* tap_weight = weight + lanes->first_x;
    // Of its own, so that loads cannot depend on its stores.
    float sum[Team::kLanes] = {};
    if (num_taps == 1) {
      for (int k = 0; k < count; ++k) {
        sum[k] = tap_weight[k] * from[tap_index[k]];
      }
    } else {
      const int32_t* const index1 = tap_index + stride;
      const float* const weight1 = tap_weight + stride;
      for (int k = 0; k < count; ++k) {
        sum[k] = tap_weight[k] * from[tap_index[k]] +
                 weight1[k] * from[index1[k]];
      }
      tap_index = index1;
      tap_weight = weight1;
    }
    for (int t = 2; t < num_taps; ++t) {
      tap_index += stride;
      tap_weight += stride;
      for (int k = 0; k < count; ++k) {
        sum[k] = sum[k] + tap_weight[k] * from[tap_index[k]];
      }
    }
    if (clamp > 0.0f) {
      for (int k = 0; k < count; ++k) {
        const float x = sum[k] < 0.0f ? 0.0f : sum[k];
        sum[k] = x > clamp ? clamp : x;
      }
    }
    for (int k = 0; k < Team::kLanes; ++k) lanes->pixel[c][k] = sum[k];
  }
}

// Of pixels that a map fills.
template <typename Team>
DATASETD_HOST_DEVICE inline void PaintFill(const FieldProgram& field,
                                           int32_t row, const int32_t* map_x,
                                           Lanes<Team>* lanes) {
  for (int k = 0; k < lanes->count; ++k) {
    const int32_t fill = NearestFill(row, map_x[lanes->first_x + k]);
    if (!IsFill(fill)) continue;
    const Move& move = ParamsAs<Move>(field.steps[FillMove(fill)]);
    DATASETD_UNROLL
    for (int c = 0; c < kMaxChannels; ++c) {
      if (c < lanes->channels) lanes->pixel[c][k] = move.fill[c];
    }
  }
}

// A coordinate made safe to be an int: what is outside stays outside.
template <typename Team>
DATASETD_HOST_DEVICE inline float NearImage(float x, int32_t size) {
  x = x > -4.0f ? x : -4.0f;
  const float high = static_cast<float>(size + 4);
  return x < high ? x : high;
}

// `image` is planar float32.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN inline void AffineNearest(
    const ChainImage& image, const AffineParams& params, const AffineDraw& draw,
    Lanes<Team>* lanes) {
  const float center_y = params.out_middle[1];
  const float center_x = params.out_middle[0];
  const float y = static_cast<float>(lanes->y) - center_y;
  const float x0 = draw.matrix[0][1] * y + draw.matrix[0][2];
  const float y0 = draw.matrix[1][1] * y + draw.matrix[1][2];
  const float step_x = draw.matrix[0][0];
  const float step_y = draw.matrix[1][0];
  const int32_t height = image.height;
  const int32_t width = image.width;
  int32_t index[Team::kLanes];
  for (int k = 0; k < Team::kLanes; ++k) {
    const float x = static_cast<float>(lanes->first_x + k) - center_x;
    const int32_t column = static_cast<int32_t>(
        RoundHalfEven(NearImage<Team>(step_x * x + x0, width)));
    const int32_t row = static_cast<int32_t>(
        RoundHalfEven(NearImage<Team>(step_y * x + y0, height)));
    const bool is_inside =
        (row >= 0) & (row < height) & (column >= 0) & (column < width);
    index[k] = is_inside ? row * width + column : -1;
  }
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    const float* const plane =
        reinterpret_cast<const float*>(image.data) + c * image.channel_stride;
    const float fill = params.has_fill ? params.fill[c] : 0.0f;
    for (int k = 0; k < Team::kLanes; ++k) {
      const float value = plane[index[k] < 0 ? 0 : index[k]];
      lanes->pixel[c][k] = index[k] < 0 ? fill : value;
    }
  }
}

template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN inline void AffineBilinear(
    const ChainImage& image, const AffineParams& params, const AffineDraw& draw,
    Lanes<Team>* lanes) {
  const float center_y = params.out_middle[1];
  const float center_x = params.out_middle[0];
  const float y = static_cast<float>(lanes->y) - center_y;
  const float x0 = draw.matrix[0][1] * y + draw.matrix[0][2];
  const float y0 = draw.matrix[1][1] * y + draw.matrix[1][2];
  const float step_x = draw.matrix[0][0];
  const float step_y = draw.matrix[1][0];
  const int32_t height = image.height;
  const int32_t width = image.width;
  // The four neighbours; outside they have weight 0.
  int32_t index[4][Team::kLanes];
  float weight[4][Team::kLanes];
  for (int k = 0; k < Team::kLanes; ++k) {
    const float x = static_cast<float>(lanes->first_x + k) - center_x;
    const float at_x = NearImage<Team>(step_x * x + x0, width);
    const float at_y = NearImage<Team>(step_y * x + y0, height);
    const float floor_x = Floor(at_x);
    const float floor_y = Floor(at_y);
    const float part_x = at_x - floor_x;
    const float part_y = at_y - floor_y;
    const int32_t column = static_cast<int32_t>(floor_x);
    const int32_t row = static_cast<int32_t>(floor_y);
    for (int corner = 0; corner < 4; ++corner) {
      const int32_t r = row + corner / 2;
      const int32_t i = column + corner % 2;
      const float weight_x = corner % 2 == 0 ? 1.0f - part_x : part_x;
      const float weight_y = corner / 2 == 0 ? 1.0f - part_y : part_y;
      const bool is_inside =
          (r >= 0) & (r < height) & (i >= 0) & (i < width);
      index[corner][k] = is_inside ? r * width + i : 0;
      weight[corner][k] = is_inside ? weight_y * weight_x : 0.0f;
    }
  }
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    const float* const plane =
        reinterpret_cast<const float*>(image.data) + c * image.channel_stride;
    const float fill = params.fill[c];
    const bool has_fill = params.has_fill;
    for (int k = 0; k < Team::kLanes; ++k) {
      float sum = weight[0][k] * plane[index[0][k]];
      sum = sum + weight[1][k] * plane[index[1][k]];
      sum = sum + weight[2][k] * plane[index[2][k]];
      sum = sum + weight[3][k] * plane[index[3][k]];
      const float mask = ((weight[0][k] + weight[1][k]) + weight[2][k]) +
                         weight[3][k];
      const float filled = mask * sum + (1.0f - mask) * fill;
      lanes->pixel[c][k] = has_fill ? filled : sum;
    }
  }
}

// Op::Apply on each lane of a planar float32 image.
template <typename Op, typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN inline void WindowLanes(
    const ChainImage& image, const Op& op, Lanes<Team>* lanes) {
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    const float* const plane =
        reinterpret_cast<const float*>(image.data) + c * image.channel_stride;
    for (int k = 0; k < lanes->count; ++k) {
      lanes->pixel[c][k] = op.Apply(plane, image.height, image.width, lanes->y,
                                    lanes->first_x + k);
    }
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_SOURCES_H_
