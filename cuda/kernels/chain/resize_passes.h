// The passes of a resize: sums along the rows of an image and down its columns.
// Both add their taps in order, so that every team gets the same bits.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_RESIZE_PASSES_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_RESIZE_PASSES_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_RESIZE_PASSES_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_RESIZE_PASSES_H_
#endif

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/chain/chain_lanes.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/program/params.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// Taps along one axis: tap t of coordinate i is index[t * stride + i], with
// weight[t * stride + i]. The indices of a coordinate ascend.
struct AxisTaps {
  const int32_t* index;
  const float* weight;
  int32_t count;
  int64_t stride;

  // Returns the taps of the coordinates from `first` on.
  DATASETD_HOST_DEVICE AxisTaps From(int32_t first) const {
    return {index + first, weight + first, count, stride};
  }
};

// Range of the indices of taps t of neighbouring coordinates; complete unless
// the TapReach is kFar.
struct TapRange {
  int32_t low, high;
};

DATASETD_HOST_DEVICE inline TapRange RangeOf(int32_t first, int32_t last) {
  return first < last ? TapRange{first, last} : TapRange{last, first};
}

// Number of vectors that hold the indices of taps t of one vector of
// neighbouring coordinates. kFar also if some are not between the first and the
// last.
enum class TapReach : uint8_t { kOneVector, kTwoVectors, kFar };

template <typename Team>
inline TapReach ReachOf(const AxisTaps& taps, int32_t size) {
  constexpr int32_t kFloats = Team::Vector::kFloats;
  if constexpr (!Team::Vector::kCanPick) return TapReach::kFar;
  int32_t reach = 0;
  for (int32_t t = 0; t < taps.count; ++t) {
    const int32_t* const index = taps.index + t * taps.stride;
    for (int32_t first = 0; first < size; first += kFloats) {
      const int32_t last =
          size - first < kFloats ? size - 1 : first + kFloats - 1;
      const TapRange range = RangeOf(index[first], index[last]);
      for (int32_t i = first; i <= last; ++i) {
        if (index[i] < range.low || index[i] > range.high) {
          return TapReach::kFar;
        }
      }
      const int32_t width = range.high - range.low;
      reach = width > reach ? width : reach;
    }
  }
  return reach < kFloats       ? TapReach::kOneVector
         : reach < 2 * kFloats ? TapReach::kTwoVectors
                               : TapReach::kFar;
}

// Loads pixels left .. left + width of an image row as planar float32: channel
// c goes to to[c * stride ...].
template <Dtype kDtype, typename Team>
DATASETD_FLATTEN inline void LoadLine(const ChainImage& image, int32_t row,
                                      int32_t left, int32_t width,
                                      int64_t stride, float* to) {
  const int64_t start =
      int64_t{row} * image.row_stride + int64_t{left} * image.pixel_stride;
  if (image.channels == 3 && image.pixel_stride == 3) {
    float* __restrict__ const to0 = to;
    float* __restrict__ const to1 = to + stride;
    float* __restrict__ const to2 = to + 2 * stride;
    const int32_t first =
        LoadRgb<kDtype, Team>(image.data, start, width, to0, to1, to2);
    for (int32_t i = first; i < width; ++i) {
      const int64_t at = start + 3 * int64_t{i};
      to0[i] = LoadElement<kDtype>(image.data, at);
      to1[i] = LoadElement<kDtype>(image.data, at + 1);
      to2[i] = LoadElement<kDtype>(image.data, at + 2);
    }
    return;
  }
  for (int32_t c = 0; c < image.channels; ++c) {
    const int64_t first = start + c * image.channel_stride;
    for (int32_t i = 0; i < width; ++i) {
      to[c * stride + i] = LoadElement<kDtype>(
          image.data, first + int64_t{i} * image.pixel_stride);
    }
  }
}

// Consecutive elements of a line, from which Pick gathers.
template <typename Vector, int kVectors>
struct LineWindow {
  typename Vector::Floats part[kVectors];

  void Load(const float* from) {
    for (int i = 0; i < kVectors; ++i) {
      part[i] = Vector::Load(from + i * Vector::kFloats);
    }
  }
  // REQUIRES: every offset is within the window.
  typename Vector::Floats Pick(typename Vector::Offsets offsets) const {
    if constexpr (kVectors == 1) {
      return Vector::Pick(part[0], offsets);
    } else {
      return Vector::Pick(part[0], part[1], offsets);
    }
  }
};

// Output of the first pass: channel c goes to to[c * plane_stride ...].
template <typename Team>
struct PlainRow {
  using Vector = typename Team::Vector;

  class Channel {
   public:
    explicit Channel(float* to) : to_(to) {}

    // Stores the first `count` sums of a vector, for coordinates x, x + 1 ...
    void Put(int32_t x, int32_t count, typename Vector::Floats sum) const {
      if (count >= Vector::kFloats) {
        Vector::Store(sum, to_ + x);
        return;
      }
      Vector::StoreSome(sum, count, to_ + x);
    }

   private:
    float* to_;
  };

  Channel At(int32_t c) const { return Channel(to + c * plane_stride); }

  float* to;
  int64_t plane_stride;
};

// Output row of the last pass.
struct ResizedRow {
  float clamp;              // clamps to 0..clamp; 0: no clamp
  const ValueScale* scale;  // null: none
  float* to;
  int64_t plane_stride;
  bool is_streamed;  // non-temporal: 64-byte aligned, whole lines
};

// Output of the last pass, with the interface of PlainRow.
template <typename Team, bool kIsStreamed>
struct FinishedRow {
  using Vector = typename Team::Vector;

  class Channel {
   public:
    Channel(const ResizedRow& row, int32_t c)
        : to_(row.to + c * row.plane_stride),
          is_clamped_(row.clamp > 0.0f),
          is_scaled_(row.scale != nullptr),
          bound_(Vector::All(row.clamp)),
          factor_(Vector::All(is_scaled_ ? row.scale->factor[c] : 1.0f)),
          bias_(Vector::All(is_scaled_ ? row.scale->bias[c] : 0.0f)) {}

    void Put(int32_t x, int32_t count, typename Vector::Floats sum) const {
      if (is_clamped_) sum = Vector::Clamp(sum, bound_);
      if (is_scaled_) sum = Vector::Add(Vector::Multiply(sum, factor_), bias_);
      if constexpr (kIsStreamed) {
        Vector::Stream(sum, to_ + x);
      } else {
        typename PlainRow<Team>::Channel(to_).Put(x, count, sum);
      }
    }

   private:
    float* to_;
    bool is_clamped_;
    bool is_scaled_;
    typename Vector::Floats bound_;
    typename Vector::Floats factor_;
    typename Vector::Floats bias_;
  };

  Channel At(int32_t c) const { return Channel(row, c); }

  const ResizedRow& row;
};

// Channels first_c .. first_c + kChannels of an output row.
template <int kChannels, typename Out>
struct RowChannels {
  typename Out::Channel row[kChannels];
};
template <int kChannels, typename Out>
inline RowChannels<kChannels, Out> RowsOf(const Out& out, int32_t first_c) {
  if constexpr (kChannels == 1) {
    return {{out.At(first_c)}};
  } else {
    static_assert(kChannels == 3);
    return {{out.At(first_c), out.At(first_c + 1), out.At(first_c + 2)}};
  }
}

// Sums along kChannels of a line for coordinates 0 .. size. Channel c is read
// from from[c * stride ...] and is channel first_c + c of `out`. May read two
// vectors beyond the taps' indices, and one vector of taps beyond `size`.
template <TapReach kReach, int kChannels, typename Team, typename Out>
DATASETD_FLATTEN inline void SumLine(const float* from, int64_t stride,
                                     const AxisTaps& taps, int32_t size,
                                     int32_t first_c, const Out& out) {
  using Vector = typename Team::Vector;
  constexpr int32_t kFloats = Vector::kFloats;
  if constexpr (kReach != TapReach::kFar) {
    // Load and permute, since a gather would load each lane separately.
    constexpr int kVectors = kReach == TapReach::kOneVector ? 1 : 2;
    const auto rows = RowsOf<kChannels>(out, first_c);
    for (int32_t first = 0; first < size; first += kFloats) {
      const int32_t last =
          size - first < kFloats ? size - 1 : first + kFloats - 1;
      const auto range_of = [&](int32_t t) {
        const int32_t* const index = taps.index + t * taps.stride;
        return RangeOf(index[first], index[last]);
      };
      // Taps within one window share its loads.
      LineWindow<Vector, kVectors> window[kChannels];
      int32_t base;
      const auto load = [&](int32_t at) DATASETD_TEAM_ATTR {
        base = at;
        DATASETD_UNROLL_FEW
        for (int c = 0; c < kChannels; ++c) {
          window[c].Load(from + c * stride + at);
        }
      };
      const auto multiply =
          [&](int32_t t, typename Vector::Floats* products) DATASETD_TEAM_ATTR {
            const int64_t at = t * taps.stride + first;
            const auto offsets = Vector::OffsetsFrom(taps.index + at, base);
            const auto weight = Vector::Load(taps.weight + at);
            DATASETD_UNROLL_FEW
            for (int c = 0; c < kChannels; ++c) {
              products[c] = Vector::Multiply(weight, window[c].Pick(offsets));
            }
          };
      load(range_of(0).low);
      typename Vector::Floats sum[kChannels];
      multiply(0, sum);
      for (int32_t t = 1; t < taps.count; ++t) {
        const TapRange range = range_of(t);
        if (range.high >= base + kVectors * kFloats) load(range.low);
        typename Vector::Floats products[kChannels];
        multiply(t, products);
        DATASETD_UNROLL_FEW
        for (int c = 0; c < kChannels; ++c) {
          sum[c] = Vector::Add(sum[c], products[c]);
        }
      }
      DATASETD_UNROLL_FEW
      for (int c = 0; c < kChannels; ++c) {
        rows.row[c].Put(first, size - first, sum[c]);
      }
    }
    return;
  }
  for (int c = 0; c < kChannels; ++c, from += stride) {
    for (int32_t first = 0; first < size; first += Team::kLanes) {
      const int32_t count =
          size - first < Team::kLanes ? size - first : Team::kLanes;
      const int32_t* index = taps.index + first;
      const float* weight = taps.weight + first;
      float sum[Team::kLanes];
      for (int32_t k = 0; k < count; ++k) sum[k] = weight[k] * from[index[k]];
      for (int32_t t = 1; t < taps.count; ++t) {
        index += taps.stride;
        weight += taps.stride;
        for (int32_t k = 0; k < count; ++k) {
          sum[k] = sum[k] + weight[k] * from[index[k]];
        }
      }
      const auto row = out.At(first_c + c);
      for (int32_t k = 0; k < count; k += kFloats) {
        row.Put(first + k, count - k, Vector::Load(sum + k));
      }
    }
  }
}

template <TapReach kReach, typename Team, typename Out>
inline void SumLine(const float* from, int64_t stride, int32_t channels,
                    const AxisTaps& taps, int32_t size, const Out& out) {
  if (channels == 3) {
    SumLine<kReach, 3, Team>(from, stride, taps, size, 0, out);
    return;
  }
  for (int32_t c = 0; c < channels; ++c) {
    SumLine<kReach, 1, Team>(from + c * stride, 0, taps, size, c, out);
  }
}

// Sums along all channels of a line.
template <typename Team, typename Out>
inline void SumLine(TapReach reach, const float* from, int64_t stride,
                    int32_t channels, const AxisTaps& taps, int32_t size,
                    const Out& out) {
  if constexpr (Team::Vector::kCanPick) {
    if (reach == TapReach::kOneVector) {
      SumLine<TapReach::kOneVector, Team>(from, stride, channels, taps, size,
                                          out);
      return;
    }
    if (reach == TapReach::kTwoVectors) {
      SumLine<TapReach::kTwoVectors, Team>(from, stride, channels, taps, size,
                                           out);
      return;
    }
  }
  SumLine<TapReach::kFar, Team>(from, stride, channels, taps, size, out);
}

// Ring buffer of planar rows: channel c of row r is data[(r % capacity) *
// row_stride + c * plane_stride ...], for `capacity` rows from `first` on.
struct RowWindow {
  const float* data;
  int64_t row_stride;
  int64_t plane_stride;
  int32_t capacity;
  int32_t first;  // a multiple of capacity, at most capacity below the rows

  DATASETD_HOST_DEVICE int64_t Offset(int32_t row) const {
    const int32_t slot = row - first;
    return (slot >= capacity ? slot - capacity : slot) * row_stride;
  }
  DATASETD_HOST_DEVICE const float* Row(int32_t row) const {
    return data + Offset(row);
  }
};

// The taps of coordinate y down the columns of rows. kNumTaps is their number;
// 0: any number; negative: too many to look up in advance.
template <int kNumTaps, typename Vector>
class ColumnTaps {
 public:
  static constexpr int kMax = kNumTaps > 0 ? kNumTaps : 16;

  ColumnTaps(const RowWindow& rows, const AxisTaps& taps, int32_t y)
      : rows_(rows), taps_(taps), y_(y) {
    if constexpr (kNumTaps >= 0) {
      for (int32_t t = 0; t < count(); ++t) {
        row_[t] = rows.Row(taps.index[t * taps.stride + y]);
        weight_[t] = Vector::All(taps.weight[t * taps.stride + y]);
      }
    }
  }

  // Returns the sums of one vector of columns from element `at` on.
  typename Vector::Floats Sum(int64_t at) const {
    typename Vector::Floats sum = Product(0, at);
    for (int32_t t = 1; t < count(); ++t) {
      sum = Vector::Add(sum, Product(t, at));
    }
    return sum;
  }

 private:
  int32_t count() const { return kNumTaps > 0 ? kNumTaps : taps_.count; }

  typename Vector::Floats Product(int32_t t, int64_t at) const {
    if constexpr (kNumTaps >= 0) {
      return Vector::Multiply(weight_[t], Vector::Load(row_[t] + at));
    } else {
      const int64_t tap = t * taps_.stride + y_;
      return Vector::Multiply(Vector::All(taps_.weight[tap]),
                              Vector::Load(rows_.Row(taps_.index[tap]) + at));
    }
  }

  const RowWindow& rows_;
  const AxisTaps& taps_;
  const int32_t y_;
  const float* row_[kMax];
  typename Vector::Floats weight_[kMax];
};

template <int kNumTaps, typename Team, typename Out>
DATASETD_FLATTEN inline void SumRows(const RowWindow& rows,
                                     const AxisTaps& taps, int32_t y,
                                     int32_t first_x, int32_t size,
                                     int32_t channels, const Out& out) {
  using Vector = typename Team::Vector;
  const ColumnTaps<kNumTaps, Vector> column(rows, taps, y);
  for (int32_t c = 0; c < channels; ++c) {
    const int64_t start = c * rows.plane_stride + first_x;
    const auto row = out.At(c);
    for (int32_t x = 0; x < size; x += Vector::kFloats) {
      row.Put(x, size - x, column.Sum(start + x));
    }
  }
}

// Sums down columns first_x .. first_x + size for coordinate y, all channels.
// Column first_x is coordinate 0 of `out`. May read a vector beyond the rows.
template <typename Team, typename Out>
inline void SumRows(const RowWindow& rows, const AxisTaps& taps, int32_t y,
                    int32_t first_x, int32_t size, int32_t channels,
                    const Out& out) {
  if (taps.count == 2) {
    SumRows<2, Team>(rows, taps, y, first_x, size, channels, out);
  } else if (taps.count == 3) {
    SumRows<3, Team>(rows, taps, y, first_x, size, channels, out);
  } else if (taps.count == 4) {
    SumRows<4, Team>(rows, taps, y, first_x, size, channels, out);
  } else if (taps.count <= ColumnTaps<0, typename Team::Vector>::kMax) {
    SumRows<0, Team>(rows, taps, y, first_x, size, channels, out);
  } else {
    SumRows<-1, Team>(rows, taps, y, first_x, size, channels, out);
  }
}

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_RESIZE_PASSES_H_
