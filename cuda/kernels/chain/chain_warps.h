// Warps on the host: the maps of a row, and the loads of lanes from where they
// lead. For CUDA threads see block_sources.h.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WARPS_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WARPS_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WARPS_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WARPS_H_
#endif

#include <cstdint>

#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/resize_passes.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/axis_taps.h"
#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/params.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

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
template <bool kProjective, typename Team>
struct RowMap {
  // Along a row, X and Y of an affine map rise or fall throughout, rounded as
  // they are.
  static constexpr bool kIsMonotonic = !kProjective;

  float start[3];
  float step[3];

  template <typename WarpDraw>
  RowMap(const WarpDraw& draw, float y) {
    DATASETD_UNROLL
    for (int i = 0; i < (kProjective ? 3 : 2); ++i) {
      start[i] = draw.matrix[i][1] * y + draw.matrix[i][2];
      step[i] = draw.matrix[i][0];
    }
  }

  float X(float x) const { return At(0, x); }
  float Y(float x) const { return At(1, x); }

 private:
  float At(int i, float x) const {
    const float at = step[i] * x + start[i];
    if constexpr (kProjective) {
      return at / (step[2] * x + start[2]);
    } else {
      return at;
    }
  }
};

// Pixels of a plane that a group of lanes reads: lane k that of row[k] and
// column[k], which lie in the image.
template <typename Team>
struct PlaneIndex {
  int32_t row[Team::kGroup];
  int32_t column[Team::kGroup];
};

// The sources of a vector of lanes, if they lie in few rows and in the columns
// of one or two vectors: num_rows rows from `row` on, columns from `column` on.
// num_rows is 0 if they do not.
struct NearSources {
  int32_t row, column;
  int32_t num_rows, num_vectors;
};

inline constexpr int32_t kMaxNearRows = 4;

// Finds the sources of kFloats lanes from `first` on, whose rows and columns
// rise or fall throughout. The vectors can be loaded at each of the rows.
template <typename Team>
inline NearSources FindNear(const PlaneIndex<Team>& index, int first,
                            int32_t height, int32_t width) {
  constexpr int kFloats = Team::Vector::kFloats;
  const int last = first + kFloats - 1;
  const int32_t row0 = index.row[first], row1 = index.row[last];
  const int32_t column0 = index.column[first], column1 = index.column[last];
  const int32_t row = row0 < row1 ? row0 : row1;
  const int32_t end_row = (row0 < row1 ? row1 : row0) + 1;
  const int32_t column = column0 < column1 ? column0 : column1;
  const int32_t end_column = (column0 < column1 ? column1 : column0) + 1;
  const int32_t num_vectors = end_column - column <= kFloats ? 1 : 2;
  const int64_t last_loaded =
      int64_t{end_row - 1} * width + column + num_vectors * kFloats;
  const bool is_near = end_row - row <= kMaxNearRows &&
                       end_column - column <= 2 * kFloats &&
                       last_loaded <= int64_t{height} * width;
  return {.row = row,
          .column = column,
          .num_rows = is_near ? end_row - row : 0,
          .num_vectors = num_vectors};
}

// Reads the pixels of a group from planes of `width`. Those that lie near are
// loaded and permuted, which takes a part of a gather's time.
template <bool kIsMonotonic, typename Team>
class PlaneReader {
 public:
  PlaneReader(const PlaneIndex<Team>& index, int32_t height, int32_t width)
      : index_(index), width_(width) {
    if constexpr (kFindsNear) {
      for (int v = 0; v < kVectors; ++v) {
        near_[v] = FindNear<Team>(index, v * kFloats, height, width);
      }
    }
  }

  // Reads kCount channels, whose planes are `stride` elements apart, to
  // values[c * kStep ...].
  template <int kCount, int kStep>
  DATASETD_FORCE_INLINE void Read(const float* plane, int64_t stride,
                                  float* values) const {
    if constexpr (kFindsNear) {
      for (int v = 0; v < kVectors; ++v) {
        if (near_[v].num_rows > 0 && near_[v].num_vectors == 1) {
          ReadNear<kCount, kStep, 1>(plane, stride, v, values);
        } else if (near_[v].num_rows > 0) {
          ReadNear<kCount, kStep, 2>(plane, stride, v, values);
        } else {
          Gather<kCount, kStep>(plane, stride, v * kFloats, (v + 1) * kFloats,
                                values);
        }
      }
    } else {
      Gather<kCount, kStep>(plane, stride, 0, Team::kGroup, values);
    }
  }

 private:
  using Vector = typename Team::Vector;
  static constexpr int kFloats = Vector::kFloats;
  static constexpr int kVectors = Team::kGroup / kFloats;
  static constexpr bool kFindsNear = kIsMonotonic && Vector::kCanPick;

  template <int kCount, int kStep>
  void Gather(const float* plane, int64_t stride, int first, int end,
              float* values) const {
    for (int c = 0; c < kCount; ++c) {
      const float* const from = plane + c * stride;
      for (int k = first; k < end; ++k) {
        values[c * kStep + k] = from[index_.row[k] * width_ + index_.column[k]];
      }
    }
  }

  template <int kCount, int kStep, int kNumVectors>
  DATASETD_FORCE_INLINE void ReadNear(const float* plane, int64_t stride, int v,
                                      float* values) const {
    const NearSources& near = near_[v];
    const int32_t* const row = index_.row + v * kFloats;
    const auto offsets =
        Vector::OffsetsFrom(index_.column + v * kFloats, near.column);
    const float* from = plane + int64_t{near.row} * width_ + near.column;
    const auto pick = [&](int c) DATASETD_TEAM_ATTR {
      LineWindow<Vector, kNumVectors> window;
      window.Load(from + c * stride);
      return window.Pick(offsets);
    };
    typename Vector::Floats found[kCount];
    for (int c = 0; c < kCount; ++c) found[c] = pick(c);
    // All channels in one loop: how often it runs cannot be predicted.
    for (int32_t i = 1; i < near.num_rows; ++i) {
      from += width_;
      for (int c = 0; c < kCount; ++c) {
        found[c] = Vector::IfEqual(row, near.row + i, pick(c), found[c]);
      }
    }
    for (int c = 0; c < kCount; ++c) {
      Vector::Store(found[c], values + c * kStep + v * kFloats);
    }
  }

  const PlaneIndex<Team>& index_;
  const int32_t width_;
  NearSources near_[kFindsNear ? kVectors : 1];
};

inline const float* PlaneOf(const ChainImage& image, int32_t channel) {
  return reinterpret_cast<const float*>(image.data) +
         channel * image.channel_stride;
}

// Samples `image`, planar float32, where `map` has the lanes' sources.
template <typename Map, typename Team>
DATASETD_FLATTEN inline void WarpNearest(const ChainImage& image,
                                         const WarpParams& params,
                                         const Map& map, Lanes<Team>* lanes) {
  const float center_x = params.out_middle[0];
  const int32_t height = image.height;
  const int32_t width = image.width;
  VisitGroups<Team>(lanes->count, [&](int first) DATASETD_TEAM_ATTR {
    PlaneIndex<Team> index;
    int32_t outside[Team::kGroup];
    int32_t any_outside = 0;
    for (int k = 0; k < Team::kGroup; ++k) {
      const float x = static_cast<float>(lanes->first_x + first + k) - center_x;
      const int32_t column =
          static_cast<int32_t>(RoundHalfEven(NearImage<Team>(map.X(x), width)));
      const int32_t row = static_cast<int32_t>(
          RoundHalfEven(NearImage<Team>(map.Y(x), height)));
      index.row[k] = ClampIndex(row, height);
      index.column[k] = ClampIndex(column, width);
      outside[k] = (index.row[k] != row) | (index.column[k] != column);
      any_outside |= outside[k];
    }
    const PlaneReader<Map::kIsMonotonic, Team> reader(index, height, width);
    VisitChannels(lanes->channels,
                  [&](auto count, int32_t first_channel) DATASETD_TEAM_ATTR {
                    reader.template Read<count, Team::kLanes>(
                        PlaneOf(image, first_channel), image.channel_stride,
                        lanes->pixel[first_channel] + first);
                    if (any_outside == 0) return;
                    for (int i = 0; i < count; ++i) {
                      const int32_t c = first_channel + i;
                      const float fill =
                          params.has_fill ? params.fill[c] : 0.0f;
                      float* const pixel = lanes->pixel[c] + first;
                      for (int k = 0; k < Team::kGroup; ++k) {
                        pixel[k] = outside[k] != 0 ? fill : pixel[k];
                      }
                    }
                  });
  });
}

template <typename Map, typename Team>
DATASETD_FLATTEN inline void WarpBilinear(const ChainImage& image,
                                          const WarpParams& params,
                                          const Map& map, Lanes<Team>* lanes) {
  const float center_x = params.out_middle[0];
  const int32_t height = image.height;
  const int32_t width = image.width;
  VisitGroups<Team>(lanes->count, [&](int first) DATASETD_TEAM_ATTR {
    // Four neighbours. Those outside the image have weight 0 and value 0, since
    // 0 times a NaN of the image is NaN.
    PlaneIndex<Team> index[4];
    int32_t outside[4][Team::kGroup];
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
        index[corner].row[k] = ClampIndex(r, height);
        index[corner].column[k] = ClampIndex(i, width);
        const bool is_outside =
            (index[corner].row[k] != r) | (index[corner].column[k] != i);
        outside[corner][k] = is_outside;
        weight[corner][k] = is_outside ? 0.0f : weight_y * weight_x;
      }
    }
    using Reader = PlaneReader<Map::kIsMonotonic, Team>;
    const Reader readers[4] = {
        Reader(index[0], height, width), Reader(index[1], height, width),
        Reader(index[2], height, width), Reader(index[3], height, width)};
    VisitChannels(lanes->channels,
                  [&](auto count, int32_t first_channel) DATASETD_TEAM_ATTR {
                    float values[4][count][Team::kGroup];
                    for (int corner = 0; corner < 4; ++corner) {
                      readers[corner].template Read<count, Team::kGroup>(
                          PlaneOf(image, first_channel), image.channel_stride,
                          values[corner][0]);
                    }
                    for (int i = 0; i < count; ++i) {
                      const int32_t c = first_channel + i;
                      const float fill = params.fill[c];
                      const bool has_fill = params.has_fill;
                      float* const pixel = lanes->pixel[c] + first;
                      const auto weighed = [&](int corner, int k) {
                        const bool is_outside = outside[corner][k] != 0;
                        return weight[corner][k] *
                               (is_outside ? 0.0f : values[corner][i][k]);
                      };
                      for (int k = 0; k < Team::kGroup; ++k) {
                        float sum = weighed(0, k);
                        sum = sum + weighed(1, k);
                        sum = sum + weighed(2, k);
                        sum = sum + weighed(3, k);
                        const float mask =
                            ((weight[0][k] + weight[1][k]) + weight[2][k]) +
                            weight[3][k];
                        const float filled = mask * sum + (1.0f - mask) * fill;
                        pixel[k] = has_fill ? filled : sum;
                      }
                    }
                  });
  });
}

// Makes the lanes by the warp that was drawn.
template <typename Team>
inline void WarpLanes(const ChainImage& image, const WarpParams& params,
                      const StepDraw& drawn, Lanes<Team>* lanes) {
  const float y = static_cast<float>(lanes->y) - params.out_middle[1];
  const auto warp = [&](const auto& map) {
    if (params.is_bilinear) {
      WarpBilinear(image, params, map, lanes);
    } else {
      WarpNearest(image, params, map, lanes);
    }
  };
  switch (drawn.kind) {
#define DATASETD_ROW(Name)                                                    \
  case StepKind::k##Name:                                                     \
    warp(RowMap<kIsProjective<Name##Draw>, Team>(drawn.As<Name##Draw>(), y)); \
    break;
    DATASETD_WARP_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    default:
      break;
  }
}

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WARPS_H_
