// A resize that halves the width of an image of bytes. The sums down its
// columns stay in registers, where SumLine loads them from a line in memory:
// the four taps of a vector of sums are the even and the odd elements of two
// vectors, and one element on either side. Adds as SumRows and SumLine do, to
// the same bits.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_CHAIN_HALVING_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_HALVING_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_HALVING_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_HALVING_H_
#endif

#include <cstdint>

#include "cuda/kernels/chain/resize_passes.h"
#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/math/host_device.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// kCount offsets from kFirst on, kStep apart.
template <int kCount, int kFirst, int kStep>
struct OffsetSequence {
  constexpr OffsetSequence() {
    for (int k = 0; k < kCount; ++k) at[k] = kFirst + kStep * k;
  }
  int32_t at[kCount] = {};
};

// Taps along a row of 2 * size elements: those of coordinate i are the elements
// 2 * i - 1 to 2 * i + 2, less what lies outside. Teams without vectors have
// none.
template <typename Team, bool kHasVectors = Team::kHasVectors>
class HalvingTaps {};

template <typename Team>
class HalvingTaps<Team, true> {
 public:
  // Returns false if the taps are others.
  bool Set(const AxisTaps& taps, int32_t size) {
    if (!Vector::kCanPick || taps.count != kNumTaps || size % kFloats != 0 ||
        size < 2 * kFloats) {
      return false;
    }
    size_ = size;
    is_reversed_ = taps.index[0] > taps.index[size - 1];
    for (int32_t i = 0; i < size; ++i) {
      if (!Agrees(taps, i)) return false;
    }
    for (int t = 0; t < kNumTaps; ++t) {
      const float inner = taps.weight[t * taps.stride + Coordinate(1)];
      for (auto& weight : weight_) {
        for (int k = 0; k < kFloats; ++k) weight[t][k] = inner;
      }
      weight_[0][t][0] =
          t == 0 ? 0.0f : taps.weight[(t - 1) * taps.stride + Coordinate(0)];
      weight_[2][t][kFloats - 1] =
          taps.weight[t * taps.stride + Coordinate(size - 1)];
    }
    return true;
  }

  // Computes output row y of all channels. REQUIRES: the rows hold bytes, so
  // that a product with the weight 0 is 0.
  template <int kNumRows, typename Out>
  DATASETD_FLATTEN void Sum(const RowWindow& rows, const AxisTaps& taps,
                            int32_t y, int32_t channels, const Out& out) const {
    if constexpr (Vector::kCanPick) {
      const ColumnTaps<kNumRows, Vector> column(rows, taps, y);
      const auto even = OffsetsOf<0, 2>();
      const auto odd = OffsetsOf<1, 2>();
      const auto before = OffsetsOf<kFloats - 1, 1>();
      const auto after = OffsetsOf<1, 1>();
      const auto reversed = OffsetsOf<kFloats - 1, -1>();
      for (int32_t c = 0; c < channels; ++c) {
        const auto row = out.At(c);
        int64_t at = c * rows.plane_stride;
        const auto load = [&]() DATASETD_TEAM_ATTR {
          const auto low = column.Sum(at);
          const auto high = column.Sum(at + kFloats);
          at += 2 * kFloats;
          return Halves{Vector::Pick(low, high, even),
                        Vector::Pick(low, high, odd)};
        };
        const auto zero = Vector::All(0.0f);
        auto last_odd = zero;
        Halves now = load();
        for (int32_t first = 0; first < size_; first += kFloats) {
          const bool is_last = first == size_ - kFloats;
          const Halves next = is_last ? Halves{zero, zero} : load();
          const auto& weight = weight_[first == 0 ? 0 : is_last ? 2 : 1];
          const auto product = [&](int t, Floats x) DATASETD_TEAM_ATTR {
            return Vector::Multiply(Vector::Load(weight[t]), x);
          };
          Floats sum = product(0, Vector::Pick(last_odd, now.odd, before));
          sum = Vector::Add(sum, product(1, now.even));
          sum = Vector::Add(sum, product(2, now.odd));
          sum = Vector::Add(
              sum, product(3, Vector::Pick(now.even, next.even, after)));
          if (is_reversed_) {
            row.Put(size_ - kFloats - first, kFloats,
                    Vector::Pick(sum, reversed));
          } else {
            row.Put(first, kFloats, sum);
          }
          last_odd = now.odd;
          now = next;
        }
      }
    }
  }

 private:
  using Vector = typename Team::Vector;
  using Floats = typename Vector::Floats;
  static constexpr int kFloats = Vector::kFloats;
  static constexpr int kNumTaps = 4;

  // Elements 0, 2, 4 ... and 1, 3, 5 ... of two vectors.
  struct Halves {
    Floats even, odd;
  };

  template <int kFirst, int kStep>
  static auto OffsetsOf() {
    static constexpr OffsetSequence<kFloats, kFirst, kStep> kSequence;
    return Vector::OffsetsFrom(kSequence.at, 0);
  }

  int32_t Coordinate(int32_t i) const {
    return is_reversed_ ? size_ - 1 - i : i;
  }

  // The first coordinate has no element before its own two, and the last none
  // after them: their last tap is the one before it, with the weight 0.
  bool Agrees(const AxisTaps& taps, int32_t i) const {
    const bool is_end = i == 0 || i == size_ - 1;
    const int32_t first = i == 0 ? 0 : 2 * i - 1;
    for (int32_t t = 0; t < kNumTaps; ++t) {
      const bool is_outside = is_end && t == kNumTaps - 1;
      const int64_t at = t * taps.stride + Coordinate(i);
      const float expected =
          is_outside ? 0.0f : taps.weight[t * taps.stride + Coordinate(1)];
      if (taps.index[at] != first + (is_outside ? t - 1 : t) ||
          ((!is_end || is_outside) && taps.weight[at] != expected)) {
        return false;
      }
    }
    return true;
  }

  int32_t size_ = 0;
  // Whether coordinate size - 1 - i has the elements of i.
  bool is_reversed_ = false;
  // By tap: of the first vector of coordinates, of those within, of the last.
  alignas(64) float weight_[3][kNumTaps][kFloats] = {};
};

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_HALVING_H_
