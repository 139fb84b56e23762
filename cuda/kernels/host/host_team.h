// The host's team, a single thread, and its vectors. Included once for each
// target, after hwy/highway.h: see team_namespace.h.

#if defined(DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_
#undef DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_
#else
#define DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_
#endif

#include <cstddef>
#include <cstdint>

#include "cuda/kernels/math/rounding.h"
#include "cuda/kernels/ops/atomics.h"
#include "cuda/kernels/program/host_checkpoint.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace datasetd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of a target. With kCanPick it can also permute lanes by offsets and
// split RGB.
struct HostVector {
  using Tag = hn::ScalableTag<float>;
  using Integers = hn::RebindToSigned<Tag>;
  using Floats = hn::Vec<Tag>;
  using Offsets = hn::Vec<Integers>;

  static constexpr int kFloats = static_cast<int>(hn::MaxLanes(Tag()));
  static constexpr bool kCanPick = HWY_MAX_BYTES >= 32;

  static Floats Load(const float* from) { return hn::LoadU(Tag(), from); }
  static void Store(Floats x, float* to) { hn::StoreU(x, Tag(), to); }
  // Stores the first `count` lanes. May write the elements after them again.
  static void StoreSome(Floats x, int32_t count, float* to) {
    hn::BlendedStore(x, hn::FirstN(Tag(), static_cast<size_t>(count)), Tag(),
                     to);
  }
  static Floats Add(Floats x, Floats y) { return hn::Add(x, y); }
  static Floats Subtract(Floats x, Floats y) { return hn::Sub(x, y); }
  static Floats Multiply(Floats x, Floats y) { return hn::Mul(x, y); }

  static Floats All(float x) { return hn::Set(Tag(), x); }
  // Clamps to 0..bound; NaN stays NaN.
  static Floats Clamp(Floats x, Floats bound) {
    const Floats zero = hn::Zero(Tag());
#if HWY_TARGET <= HWY_SSE4  // of x86: Min and Max return y if x or y is NaN
    return hn::Min(bound, hn::Max(zero, x));
#else
    const Floats low = hn::IfThenElse(hn::Lt(x, zero), zero, x);
    return hn::IfThenElse(hn::Lt(bound, low), bound, low);
#endif
  }

  // Stores CanonicalFloat(x), bypassing the caches. REQUIRES: `to` is aligned.
  static void Stream(Floats x, float* to) {
    const Floats nan = hn::BitCast(
        Tag(), hn::Set(Integers(), static_cast<int32_t>(kNanFloat32)));
    hn::Stream(hn::IfThenElse(hn::IsNaN(x), nan, x), Tag(), to);
  }

#if HWY_MAX_BYTES >= 32
  // Returns index[k] - base for kFloats indices.
  static Offsets OffsetsFrom(const int32_t* index, int32_t base) {
    return hn::Sub(hn::LoadU(Integers(), index), hn::Set(Integers(), base));
  }
  // Lane k of the result is element offsets[k] of x, or of x and y.
  static Floats Pick(Floats x, Offsets offsets) {
    return hn::TableLookupLanes(x, hn::IndicesFromVec(Tag(), offsets));
  }
  static Floats Pick(Floats x, Floats y, Offsets offsets) {
#if HWY_TARGET <= HWY_AVX3
    // Highway has no lookup in two vectors yet.
    return Floats{_mm512_permutex2var_ps(x.raw, offsets.raw, y.raw)};
#else
    // Move bit 3 of the offset to the sign bit.
    const Floats is_second = hn::BitCast(Tag(), hn::ShiftLeft<28>(offsets));
    return hn::IfNegativeThenElse(is_second, Pick(y, offsets),
                                  Pick(x, offsets));
#endif
  }

  // Lane k of the result is that of `yes` where index[k] is `value`, else that
  // of `no`.
  static Floats IfEqual(const int32_t* index, int32_t value, Floats yes,
                        Floats no) {
    const auto is_equal =
        hn::Eq(hn::LoadU(Integers(), index), hn::Set(Integers(), value));
    return hn::IfThenElse(hn::RebindMask(Tag(), is_equal), yes, no);
  }

  // Splits bytes of kFloats interleaved three-channel pixels into one row per
  // channel.
  static void SplitRgb(const uint8_t* from, float* to0, float* to1,
                       float* to2) {
    constexpr hn::Repartition<uint8_t, Tag> kBytes;
    // Four pixels per 16-byte part, of which the last four bytes are unused.
    alignas(64) static constexpr int32_t kWords[16] = {
        0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11};
    alignas(16) static constexpr uint8_t kFirst[16] = {
        0, 0x80, 0x80, 0x80, 3, 0x80, 0x80, 0x80,
        6, 0x80, 0x80, 0x80, 9, 0x80, 0x80, 0x80};
    const Offsets words =
        hn::MaskedLoad(hn::FirstN(Integers(), kFloats * 3 / 4), Integers(),
                       reinterpret_cast<const int32_t*>(from));
    const auto pixels = hn::BitCast(
        kBytes,
        hn::TableLookupLanes(words, hn::SetTableIndices(Integers(), kWords)));
    const auto split = [&](Offsets bytes, float* to) HWY_ATTR {
      const auto channel =
          hn::TableLookupBytes(pixels, hn::BitCast(kBytes, bytes));
      Store(hn::ConvertTo(Tag(), hn::BitCast(Integers(), channel)), to);
    };
    const Offsets first =
        hn::BitCast(Integers(), hn::LoadDup128(kBytes, kFirst));
    const Offsets next = hn::Set(Integers(), 1);
    const Offsets second = hn::Add(first, next);
    split(first, to0);
    split(second, to1);
    split(hn::Add(second, next), to2);
  }
#endif
};

struct HostTeam {
  using Atomics = PlainAtomics;
  using Vector = HostVector;

  // A row of most images, which amortises the cost per block.
  static constexpr int kLanes = 256;
  static constexpr int kGroup = 32;
  static constexpr bool kHasVectors = true;
  // Half of a first-level cache.
  static constexpr int64_t kRowElements = 4096;

  static constexpr int rank() { return 0; }
  static constexpr int size() { return 1; }
  void Sync() const {}
  static bool GoesOn() { return datasetd::GoesOn(); }
};

}  // namespace datasetd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_HOST_HOST_TEAM_H_
