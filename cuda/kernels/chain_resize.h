// The passes of a resize: first along the rows of the image, each row once,
// then down the columns of what that made. Both add up their taps in order, so
// that every team gets the same bits.
//
// All of it are templates over the team, as in chain_lanes.h.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_RESIZE_H_
#define DATASETD_CUDA_KERNELS_CHAIN_RESIZE_H_

#include <cstdint>

#include "cuda/dtype.h"
#include "cuda/kernels/chain_lanes.h"
#include "cuda/kernels/chain_state.h"
#include "cuda/kernels/host_device.h"
#include "cuda/kernels/params.h"

namespace datasetd {

// Taps along one axis: tap t of coordinate i is index[t * stride + i], with
// weight[t * stride + i]. Those of a coordinate ascend.
struct AxisTaps {
  const int32_t* index;
  const float* weight;
  int32_t count;
  int64_t stride;
};

// What the taps t of neighbouring coordinates name: all between the ends, where
// a TapReach says so.
struct TapRange {
  int32_t low, high;
};

DATASETD_HOST_DEVICE inline TapRange RangeOf(int32_t first, int32_t last) {
  return first < last ? TapRange{first, last} : TapRange{last, first};
}

// Vectors that hold what the taps t of one vector's worth of neighbouring
// coordinates name; far, too, where not all lie between the first and the last.
enum class TapReach : uint8_t { kOneVector, kTwoVectors, kFar };

template <typename Team>
inline TapReach ReachOf(const AxisTaps& taps, int32_t size) {
  constexpr int32_t kFloats = Team::Vector::kFloats;
  if constexpr (kFloats == 1) return TapReach::kFar;
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

// Pixels left .. left + width of a row of the image, planar: channel c is
// to[c * stride ...].
template <Dtype kDtype, typename Team>
DATASETD_FLATTEN inline void LoadLine(const ChainImage& image, int32_t row,
                                      int32_t left, int32_t width,
                                      int64_t stride, float* to) {
  const int64_t start = int64_t{row} * image.row_stride +
                        int64_t{left} * image.pixel_stride;
  if (image.channels == 3 && image.pixel_stride == 3) {
    float* __restrict__ const to0 = to;
    float* __restrict__ const to1 = to + stride;
    float* __restrict__ const to2 = to + 2 * stride;
    const int32_t first = LoadRgb<kDtype, Team>(image.data, start, width, to0,
                                                to1, to2);
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

// The first pass over kChannels of a line: channel c is from[c * stride ...],
// and becomes to[c * size ...]. May read two vectors beyond what the taps name,
// and one of the taps beyond `size`.
template <TapReach kReach, int kChannels, typename Team>
DATASETD_FLATTEN inline void SumLine(const float* from, int64_t stride,
                                     const AxisTaps& taps, int32_t size,
                                     float* to) {
  if constexpr (kReach != TapReach::kFar && Team::Vector::kFloats > 1) {
    // A load and a permutation, where a gather would make a load a lane.
    using Vector = typename Team::Vector;
    constexpr int32_t kFloats = Vector::kFloats;
    constexpr int kVectors = kReach == TapReach::kOneVector ? 1 : 2;
    for (int32_t first = 0; first < size; first += kFloats) {
      const int32_t last =
          size - first < kFloats ? size - 1 : first + kFloats - 1;
      const auto range_of = [&](int32_t t) {
        const int32_t* const index = taps.index + t * taps.stride;
        return RangeOf(index[first], index[last]);
      };
      // Taps within one window share its loads.
      typename Vector::template Window<kVectors> window[kChannels];
      int32_t base;
      const auto load = [&](int32_t at) {
        base = at;
        for (int c = 0; c < kChannels; ++c) {
          window[c] =
              Vector::template LoadWindow<kVectors>(from + c * stride + at);
        }
      };
      const auto multiply = [&](int32_t t, typename Vector::Floats* products) {
        const int64_t at = t * taps.stride + first;
        const auto offsets = Vector::OffsetsFrom(taps.index + at, base);
        const auto weight = Vector::Load(taps.weight + at);
        for (int c = 0; c < kChannels; ++c) {
          products[c] = Vector::Multiply(
              weight, Vector::template Pick<kVectors>(window[c], offsets));
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
        for (int c = 0; c < kChannels; ++c) {
          sum[c] = Vector::Add(sum[c], products[c]);
        }
      }
      for (int c = 0; c < kChannels; ++c) {
        float* const row = to + int64_t{c} * size;
        if (first + kFloats <= size) {
          Vector::Store(sum[c], row + first);
        } else {
          float rest[kFloats];
          Vector::Store(sum[c], rest);
          for (int32_t i = first; i < size; ++i) row[i] = rest[i - first];
        }
      }
    }
    return;
  }
  for (int c = 0; c < kChannels; ++c, from += stride, to += size) {
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
      for (int32_t k = 0; k < count; ++k) to[first + k] = sum[k];
    }
  }
}

template <TapReach kReach, typename Team>
inline void SumLine(const float* from, int64_t stride, int32_t channels,
                    const AxisTaps& taps, int32_t size, float* to) {
  if (channels == 3) {
    SumLine<kReach, 3, Team>(from, stride, taps, size, to);
    return;
  }
  for (int32_t c = 0; c < channels; ++c) {
    SumLine<kReach, 1, Team>(from + c * stride, 0, taps, size,
                             to + int64_t{c} * size);
  }
}

template <typename Team>
inline void SumLine(TapReach reach, const float* from, int64_t stride,
                    int32_t channels, const AxisTaps& taps, int32_t size,
                    float* to) {
  switch (reach) {
    case TapReach::kOneVector:
      SumLine<TapReach::kOneVector, Team>(from, stride, channels, taps, size,
                                          to);
      break;
    case TapReach::kTwoVectors:
      SumLine<TapReach::kTwoVectors, Team>(from, stride, channels, taps, size,
                                           to);
      break;
    case TapReach::kFar:
      SumLine<TapReach::kFar, Team>(from, stride, channels, taps, size, to);
      break;
  }
}

// The first pass at one coordinate, straight from the image: its element
// `start` is the window's first of the row and the channel.
template <Dtype kDtype>
DATASETD_HOST_DEVICE inline float SumAlongRow(const ChainImage& image,
                                              int64_t start,
                                              const AxisTaps& taps, int32_t i) {
  float sum = 0.0f;
  for (int32_t t = 0; t < taps.count; ++t) {
    const int64_t at = t * taps.stride + i;
    const float product =
        taps.weight[at] *
        LoadElement<kDtype>(
            image.data, start + int64_t{taps.index[at]} * image.pixel_stride);
    sum = t == 0 ? product : sum + product;
  }
  return sum;
}

// Rows that the first pass made: image row r, planar, is
// data[(r % capacity) * row_stride ...], for `capacity` rows from `first` on.
struct RowWindow {
  const float* data;
  int64_t row_stride;
  int32_t width;
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

// The second pass: lanes of output row `lanes->y`.
template <typename Team>
DATASETD_HOST_DEVICE DATASETD_FLATTEN inline void SumColumns(
    const RowWindow& rows, const AxisTaps& taps, float clamp,
    Lanes<Team>* lanes) {
  const int32_t* const index = taps.index + lanes->y;
  const float* const weight = taps.weight + lanes->y;
  const float* const row0 = rows.Row(index[0]) + lanes->first_x;
  const float factor0 = weight[0];
  // Second taps are common.
  const bool has_second = taps.count > 1;
  const float* const row1 =
      has_second ? rows.Row(index[taps.stride]) + lanes->first_x : row0;
  const float factor1 = has_second ? weight[taps.stride] : 0.0f;
  const int count = lanes->count;
  DATASETD_UNROLL
  for (int c = 0; c < kMaxChannels; ++c) {
    if (c >= lanes->channels) continue;
    const int64_t plane = int64_t{c} * rows.width;
    float* const pixel = lanes->pixel[c];
    if (has_second) {
      for (int k = 0; k < count; ++k) {
        pixel[k] = factor0 * row0[plane + k] + factor1 * row1[plane + k];
      }
    } else {
      for (int k = 0; k < count; ++k) pixel[k] = factor0 * row0[plane + k];
    }
    for (int t = 2; t < taps.count; ++t) {
      const float* const row =
          rows.Row(index[t * taps.stride]) + lanes->first_x + plane;
      const float factor = weight[t * taps.stride];
      for (int k = 0; k < count; ++k) pixel[k] = pixel[k] + factor * row[k];
    }
    if (clamp > 0.0f) {
      for (int k = 0; k < count; ++k) {
        const float x = pixel[k] < 0.0f ? 0.0f : pixel[k];
        pixel[k] = x > clamp ? clamp : x;
      }
    }
  }
}

// What becomes of an output row, all channels, where no lanes are needed.
struct ResizedRow {
  float clamp;
  const ValueScale* scale;  // null: none
  float* to;
  int64_t plane_stride;
  bool is_streamed;  // past the caches: 64-byte aligned, of whole lines
};

inline constexpr int kMaxDirectTaps = 16;

template <int kNumTaps, bool kIsStreamed, typename Team>
DATASETD_FLATTEN inline void WriteRow(const RowWindow& rows,
                                      const AxisTaps& taps, int32_t y,
                                      int32_t channels, const ResizedRow& out) {
  using Vector = typename Team::Vector;
  using Floats = typename Vector::Floats;
  const int32_t count = kNumTaps == 0 ? taps.count : kNumTaps;
  const float* row[kMaxDirectTaps];
  Floats weight[kMaxDirectTaps];
  for (int32_t t = 0; t < count; ++t) {
    row[t] = rows.Row(taps.index[t * taps.stride + y]);
    weight[t] = Vector::All(taps.weight[t * taps.stride + y]);
  }
  const Floats bound = Vector::All(out.clamp);
  for (int32_t c = 0; c < channels; ++c) {
    const int64_t from = int64_t{c} * rows.width;
    float* const to = out.to + c * out.plane_stride;
    const bool is_scaled = out.scale != nullptr;
    const Floats factor = Vector::All(is_scaled ? out.scale->factor[c] : 1.0f);
    const Floats bias = Vector::All(is_scaled ? out.scale->bias[c] : 0.0f);
    const auto at = [&](int32_t x) {
      Floats sum = Vector::Multiply(weight[0], Vector::Load(row[0] + from + x));
      for (int32_t t = 1; t < count; ++t) {
        sum = Vector::Add(
            sum, Vector::Multiply(weight[t], Vector::Load(row[t] + from + x)));
      }
      if (out.clamp > 0.0f) sum = Vector::Clamp(sum, bound);
      return is_scaled ? Vector::Add(Vector::Multiply(sum, factor), bias) : sum;
    };
    int32_t x = 0;
    for (; x + Vector::kFloats <= rows.width; x += Vector::kFloats) {
      if constexpr (kIsStreamed) {
        Vector::Stream(at(x), to + x);
      } else {
        Vector::Store(at(x), to + x);
      }
    }
    if (x < rows.width) {
      float rest[Vector::kFloats];
      Vector::Store(at(x), rest);
      for (int32_t k = x; k < rows.width; ++k) to[k] = rest[k - x];
    }
  }
}

// REQUIRES: at most kMaxDirectTaps. May read a vector beyond the rows.
template <typename Team>
inline void WriteRow(const RowWindow& rows, const AxisTaps& taps, int32_t y,
                     int32_t channels, const ResizedRow& out) {
  if (taps.count == 2) {
    out.is_streamed ? WriteRow<2, true, Team>(rows, taps, y, channels, out)
                    : WriteRow<2, false, Team>(rows, taps, y, channels, out);
  } else {
    out.is_streamed ? WriteRow<0, true, Team>(rows, taps, y, channels, out)
                    : WriteRow<0, false, Team>(rows, taps, y, channels, out);
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_RESIZE_H_
