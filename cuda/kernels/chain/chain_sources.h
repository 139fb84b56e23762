// Sources of a pass's pixels on the host: loads lanes from an image by integer
// moves, a warp or a neighbourhood op. For CUDA threads see block_sources.h,
// for resizes chain_resizer.h.
//
// Everything is a template over the team, as in chain_lanes.h.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_CHAIN_SOURCES_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_SOURCES_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_SOURCES_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_SOURCES_H_
#endif

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// Loads three interleaved channels from consecutive columns, ascending or
// descending.
template <Dtype kDtype, typename Team>
DATASETD_FLATTEN inline void GatherRgb(const ChainImage& image,
                                       int64_t row_start, int32_t first,
                                       int direction, Lanes<Team>* lanes) {
  const int count = lanes->count;
  const int64_t start =
      row_start + 3 * int64_t{direction > 0 ? first : first - count + 1};
  float made[3][Team::kLanes];
  for (int32_t k = LoadRgb<kDtype, Team>(image.data, start, count, made[0],
                                         made[1], made[2]);
       k < count; ++k) {
    for (int c = 0; c < 3; ++c) {
      made[c][k] = LoadElement<kDtype>(image.data, start + 3 * int64_t{k} + c);
    }
  }
  for (int c = 0; c < 3; ++c) {
    for (int k = 0; k < count; ++k) {
      lanes->pixel[c][k] = made[c][direction > 0 ? k : count - 1 - k];
    }
  }
}

// Loads row `row`: column x comes from column first + x, or from map[x] if
// `map` is not null.
template <Dtype kDtype, typename Team>
DATASETD_FLATTEN inline void GatherRow(const ChainImage& image, int32_t row,
                                       const int32_t* map, int32_t first,
                                       int direction, Lanes<Team>* lanes) {
  const int count = lanes->count;
  const int64_t row_start = static_cast<int64_t>(row) * image.row_stride;
  if (map == nullptr && lanes->channels == 3 && image.pixel_stride == 3) {
    GatherRgb<kDtype>(image, row_start, first, direction, lanes);
    return;
  }
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
    } else {
      const int32_t step = image.pixel_stride;
      for (int k = 0; k < count; ++k) {
        pixel[k] = LoadElement<kDtype>(image.data,
                                       start + (first + direction * k) * step);
      }
    }
  }
}

// Loads lanes by the maps of a chain of moves: `row` is the row's map entry,
// map_x the column map (null: identity).
template <typename Team>
inline void GatherLanes(const ChainImage& image, int32_t row,
                        const int32_t* map_x, bool has_fill,
                        Lanes<Team>* lanes) {
  if (IsFill(row)) row = 0;
  const int32_t* map = map_x;
  int32_t first = lanes->first_x;
  int direction = 1;
  if (map != nullptr) map += lanes->first_x;
  if (map == nullptr) {
    // Source column equals output column.
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

// Writes the fill of pixels that a map marks.
template <typename Team>
DATASETD_HOST_DEVICE inline void PaintFill(const FieldProgram& field,
                                           int32_t row, const int32_t* map_x,
                                           Lanes<Team>* lanes) {
  VisitLanes<Team>(0, lanes->count, [&](int k) {
    const int32_t fill = NearestFill(row, map_x[lanes->X(k)]);
    if (!IsFill(fill)) return;
    const Move& move = ParamsAs<Move>(field.steps[FillMove(fill)]);
    DATASETD_UNROLL
    for (int c = 0; c < kMaxChannels; ++c) {
      if (c < lanes->channels) lanes->pixel[c][k] = move.fill[c];
    }
  });
}

// Clamps a coordinate to the range of int; outside stays outside.
template <typename Team>
DATASETD_HOST_DEVICE inline float NearImage(float x, int32_t size) {
  x = x > -4.0f ? x : -4.0f;
  const float high = static_cast<float>(size + 4);
#if defined(__CUDA_ARCH__)
  return fminf(x, high);
#else
  return x < high ? x : high;
#endif
}

// Sources of the pixels of output row y, which are columns x; both are relative
// to the output's centre.
template <typename Team>
struct AffineMap {
  float x0, y0;
  float step_x, step_y;

  DATASETD_HOST_DEVICE AffineMap(const AffineDraw& draw, float y)
      : x0(draw.matrix[0][1] * y + draw.matrix[0][2]),
        y0(draw.matrix[1][1] * y + draw.matrix[1][2]),
        step_x(draw.matrix[0][0]),
        step_y(draw.matrix[1][0]) {}

  DATASETD_HOST_DEVICE float X(float x) const { return step_x * x + x0; }
  DATASETD_HOST_DEVICE float Y(float x) const { return step_y * x + y0; }
};

template <typename Team>
struct PerspectiveMap {
  float start[3];
  float step[3];

  DATASETD_HOST_DEVICE PerspectiveMap(const PerspectiveDraw& draw, float y) {
    DATASETD_UNROLL
    for (int i = 0; i < 3; ++i) {
      start[i] = draw.matrix[i][1] * y + draw.matrix[i][2];
      step[i] = draw.matrix[i][0];
    }
  }

  DATASETD_HOST_DEVICE float X(float x) const {
    return (step[0] * x + start[0]) / (step[2] * x + start[2]);
  }
  DATASETD_HOST_DEVICE float Y(float x) const {
    return (step[1] * x + start[1]) / (step[2] * x + start[2]);
  }
};

// Samples `image`, planar float32, where `map` has the lanes' sources.
template <typename Map, typename Team>
DATASETD_FLATTEN inline void WarpNearest(const ChainImage& image,
                                         const WarpParams& params,
                                         const Map& map, Lanes<Team>* lanes) {
  const float center_x = params.out_middle[0];
  const int32_t height = image.height;
  const int32_t width = image.width;
  VisitGroups<Team>(lanes->count, [&](int first) {
    int32_t index[Team::kGroup];
    int32_t outside[Team::kGroup];
    for (int k = 0; k < Team::kGroup; ++k) {
      const float x = static_cast<float>(lanes->first_x + first + k) - center_x;
      const int32_t column =
          static_cast<int32_t>(RoundHalfEven(NearImage<Team>(map.X(x), width)));
      const int32_t row = static_cast<int32_t>(
          RoundHalfEven(NearImage<Team>(map.Y(x), height)));
      const bool is_inside =
          (row >= 0) & (row < height) & (column >= 0) & (column < width);
      index[k] = is_inside ? row * width + column : 0;
      outside[k] = is_inside ? 0 : 1;
    }
    DATASETD_UNROLL
    for (int c = 0; c < kMaxChannels; ++c) {
      if (c >= lanes->channels) continue;
      const float* const plane =
          reinterpret_cast<const float*>(image.data) + c * image.channel_stride;
      const float fill = params.has_fill ? params.fill[c] : 0.0f;
      float value[Team::kGroup];
      for (int k = 0; k < Team::kGroup; ++k) value[k] = plane[index[k]];
      float* const pixel = lanes->pixel[c] + first;
      for (int k = 0; k < Team::kGroup; ++k) {
        pixel[k] = outside[k] != 0 ? fill : value[k];
      }
    }
  });
}

template <typename Map, typename Team>
DATASETD_FLATTEN inline void WarpBilinear(const ChainImage& image,
                                          const WarpParams& params,
                                          const Map& map, Lanes<Team>* lanes) {
  const float center_x = params.out_middle[0];
  const int32_t height = image.height;
  const int32_t width = image.width;
  VisitGroups<Team>(lanes->count, [&](int first) {
    // Four neighbours. Those outside the image have weight 0, index -1 and
    // value 0, since 0 times a NaN of the image is NaN.
    int32_t index[4][Team::kGroup];
    float weight[4][Team::kGroup];
    for (int k = 0; k < Team::kGroup; ++k) {
      const float x = static_cast<float>(lanes->first_x + first + k) - center_x;
      const float at_x = NearImage<Team>(map.X(x), width);
      const float at_y = NearImage<Team>(map.Y(x), height);
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
        const bool is_inside = (r >= 0) & (r < height) & (i >= 0) & (i < width);
        index[corner][k] = is_inside ? r * width + i : -1;
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
      float* const pixel = lanes->pixel[c] + first;
      const auto weighed = [&](int corner, int k) {
        const int32_t at = index[corner][k];
        const float value = plane[at < 0 ? 0 : at];
        return weight[corner][k] * (at < 0 ? 0.0f : value);
      };
      for (int k = 0; k < Team::kGroup; ++k) {
        float sum = weighed(0, k);
        sum = sum + weighed(1, k);
        sum = sum + weighed(2, k);
        sum = sum + weighed(3, k);
        const float mask =
            ((weight[0][k] + weight[1][k]) + weight[2][k]) + weight[3][k];
        const float filled = mask * sum + (1.0f - mask) * fill;
        pixel[k] = has_fill ? filled : sum;
      }
    }
  });
}

template <typename Map, typename Team, typename Draw>
inline void WarpLanes(const ChainImage& image, const WarpParams& params,
                      const Draw& draw, Lanes<Team>* lanes) {
  const Map map(draw, static_cast<float>(lanes->y) - params.out_middle[1]);
  if (params.is_bilinear) {
    WarpBilinear<Map, Team>(image, params, map, lanes);
  } else {
    WarpNearest<Map, Team>(image, params, map, lanes);
  }
}

// Applies Op::Apply to each lane of a planar float32 image.
template <typename Op, typename Team>
DATASETD_FLATTEN inline void WindowLanes(const ChainImage& image, const Op& op,
                                         Lanes<Team>* lanes) {
  const auto* const planes = reinterpret_cast<const float*>(image.data);
  for (int c = 0; c < lanes->channels; ++c) {
    const float* const plane = planes + c * image.channel_stride;
    const auto apply = [&](int first, int end) {
      for (int k = first; k < end; ++k) {
        float made[1];
        op.Apply(plane, 0, image.height, image.width, lanes->y,
                 lanes->first_x + k, made);
        lanes->pixel[c][k] = made[0];
      }
    };
    // Lanes first .. end are farther than the margin from the row's ends.
    const int first_x = lanes->first_x;
    const int margin = op.Margin();
    int first = margin > first_x ? margin - first_x : 0;
    first = first < lanes->count ? first : lanes->count;
    int end = image.width - margin - first_x;
    end = end < lanes->count ? end : lanes->count;
    end = end > first ? end : first;
    apply(0, first);
    // A local buffer, so that its stores cannot alias the loads.
    float made[Team::kLanes];
    op.ApplyRun(plane, image.height, image.width, lanes->y, first_x + first,
                end - first, made);
    for (int k = first; k < end; ++k) lanes->pixel[c][k] = made[k - first];
    apply(end, lanes->count);
  }
}

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_SOURCES_H_
