// Sources of a pass's pixels on the host: loads lanes from an image by integer
// moves or a neighbourhood op. For CUDA threads see block_sources.h, for warps
// chain_warps.h, for resizes chain_resizer.h.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_HOST_SOURCES_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_HOST_SOURCES_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_HOST_SOURCES_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_HOST_SOURCES_H_
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
#include "cuda/kernels/program/value.h"

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
  VisitImageDtype(image.dtype, [&](auto dtype) DATASETD_TEAM_ATTR {
    GatherRow<dtype>(image, row, map, first, direction, lanes);
  });
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

// Applies Op::Apply to each lane of a planar float32 image.
template <typename Op, typename Team>
DATASETD_FLATTEN inline void WindowLanes(const ChainImage& image, const Op& op,
                                         Lanes<Team>* lanes) {
  const auto* const planes = reinterpret_cast<const float*>(image.data);
  for (int c = 0; c < lanes->channels; ++c) {
    const float* const plane = planes + c * image.channel_stride;
    const auto apply = [&](int first, int end) {
      for (int k = first; k < end; ++k) {
        lanes->pixel[c][k] = op.Apply(plane, image.height, image.width,
                                      lanes->y, lanes->first_x + k);
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

#endif  // DATASETD_CUDA_KERNELS_CHAIN_HOST_SOURCES_H_
