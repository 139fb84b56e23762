#include "cuda/kernels/host/byte_vector.h"

#include <cstdint>

#include "base/dtype.h"
#include "cuda/kernels/host/host_targets.h"

// Compiles this file once for each target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cuda/kernels/host/byte_vector.cc"
#include "hwy/foreach_target.h"
// For each of them:
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace datasetd::HWY_NAMESPACE {
namespace {

#if HWY_NATIVE_FMA && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of 64 bytes convert no faster: the stores are the limit.
using Tag = hn::CappedTag<float, 8>;
using Floats = hn::Vec<Tag>;
using Halves = hn::Rebind<uint16_t, Tag>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));

HWY_INLINE Floats LoadBytes(const uint8_t* from) {
  constexpr hn::RebindToSigned<Tag> kIntegers;
  constexpr hn::Rebind<uint8_t, Tag> kBytes;
  return hn::ConvertTo(Tag(),
                       hn::PromoteTo(kIntegers, hn::LoadU(kBytes, from)));
}

HWY_INLINE Floats Divide(Floats x, Floats high, Floats low) {
  return hn::MulAdd(x, high, hn::Mul(x, low));
}

// Rounds to nearest even. REQUIRES: no NaN.
HWY_INLINE hn::Vec<Halves> RoundToBfloat16(Floats x) {
  constexpr hn::RebindToUnsigned<Tag> kUnsigned;
  constexpr hn::RebindToSigned<Tag> kSigned;
  const auto bits = hn::BitCast(kUnsigned, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(kUnsigned, 1));
  const auto bias = hn::Add(odd, hn::Set(kUnsigned, 0x7FFF));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, bias));
  return hn::DemoteTo(Halves(), hn::BitCast(kSigned, rounded));
}

template <Dtype kDtype>
HWY_INLINE auto Round(Floats x) {
  if constexpr (kDtype == Dtype::kFloat32) {
    return x;
  } else if constexpr (kDtype == Dtype::kFloat16) {
    return hn::BitCast(Halves(),
                       hn::DemoteTo(hn::Rebind<hwy::float16_t, Tag>(), x));
  } else {
    return RoundToBfloat16(x);
  }
}

template <Dtype kDtype, bool kIsStreamed>
HWY_INLINE void Store(uint8_t* to, Floats x) {
  const auto rounded = Round<kDtype>(x);
  constexpr hn::DFromV<decltype(rounded)> kTag;
  auto* const out = reinterpret_cast<hn::TFromD<decltype(kTag)>*>(to);
  if constexpr (kIsStreamed) {
    hn::Stream(rounded, kTag, out);
  } else {
    hn::StoreU(rounded, kTag, out);
  }
}

// kVectors vectors of bytes hold whole periods of the channels.
template <Dtype kDtype, bool kHasDivide, bool kHasNormalize, int kVectors,
          bool kIsStreamed>
int64_t Convert(const uint8_t* from, int64_t count, const VectorChain& chain,
                int first_channel, int num_channels, uint8_t* to) {
  constexpr int kBlock = kLanes * kVectors;
  constexpr int kSizeBytes = DtypeSizeBytes(kDtype);
  const Floats divide_high = hn::Set(Tag(), chain.divide.high);
  const Floats divide_low = hn::Set(Tag(), chain.divide.low);
  float mean[kBlock], high[kBlock], low[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const int channel = first_channel + i % num_channels;
    mean[i] = chain.mean[channel];
    high[i] = chain.std[channel].high;
    low[i] = chain.std[channel].low;
  }
  Floats means[kVectors], highs[kVectors], lows[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    means[v] = hn::LoadU(Tag(), mean + v * kLanes);
    highs[v] = hn::LoadU(Tag(), high + v * kLanes);
    lows[v] = hn::LoadU(Tag(), low + v * kLanes);
  }
  int64_t done = 0;
  for (; done + kBlock <= count; done += kBlock) {
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = done + v * kLanes;
      Floats x = LoadBytes(from + at);
      if constexpr (kHasDivide) x = Divide(x, divide_high, divide_low);
      if constexpr (kHasNormalize) {
        x = Divide(hn::Sub(x, means[v]), highs[v], lows[v]);
      }
      Store<kDtype, kIsStreamed>(to + at * kSizeBytes, x);
    }
  }
  return done;
}

template <Dtype kDtype, int kVectors, bool kIsStreamed>
int64_t DispatchChain(const uint8_t* from, int64_t count,
                      const VectorChain& chain, int first_channel,
                      int num_channels, uint8_t* to) {
  if (chain.has_divide) {
    return chain.has_normalize
               ? Convert<kDtype, true, true, kVectors, kIsStreamed>(
                     from, count, chain, first_channel, num_channels, to)
               : Convert<kDtype, true, false, kVectors, kIsStreamed>(
                     from, count, chain, first_channel, num_channels, to);
  }
  return chain.has_normalize
             ? Convert<kDtype, false, true, kVectors, kIsStreamed>(
                   from, count, chain, first_channel, num_channels, to)
             : Convert<kDtype, false, false, kVectors, kIsStreamed>(
                   from, count, chain, first_channel, num_channels, to);
}

template <Dtype kDtype>
int64_t DispatchStore(const uint8_t* from, int64_t count,
                      const VectorChain& chain, int first_channel,
                      int num_channels, uint8_t* to) {
  const bool is_streamed = reinterpret_cast<uintptr_t>(to) % 64 == 0;
  // Three channels repeat after three vectors; one, two and four after one.
  if (num_channels == 3) {
    return is_streamed
               ? DispatchChain<kDtype, 3, true>(from, count, chain,
                                                first_channel, num_channels, to)
               : DispatchChain<kDtype, 3, false>(
                     from, count, chain, first_channel, num_channels, to);
  }
  return is_streamed ? DispatchChain<kDtype, 1, true>(
                           from, count, chain, first_channel, num_channels, to)
                     : DispatchChain<kDtype, 1, false>(
                           from, count, chain, first_channel, num_channels, to);
}

int64_t ConvertBytes(const uint8_t* from, int64_t count,
                     const VectorChain& chain, int first_channel,
                     int num_channels, Dtype dtype, uint8_t* to) {
  switch (dtype) {
    case Dtype::kFloat16:
      return DispatchStore<Dtype::kFloat16>(from, count, chain, first_channel,
                                            num_channels, to);
    case Dtype::kBfloat16:
      return DispatchStore<Dtype::kBfloat16>(from, count, chain, first_channel,
                                             num_channels, to);
    default:
      return DispatchStore<Dtype::kFloat32>(from, count, chain, first_channel,
                                            num_channels, to);
  }
}

using Block = hn::FixedTag<uint8_t, 16>;

template <bool kIsMirrored>
void SplitPixels(const uint8_t* from, int32_t count, uint8_t* planes,
                 int32_t plane_stride) {
  alignas(16) static constexpr uint8_t kReversed[16] = {
      15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  const auto reversed = hn::Load(Block(), kReversed);
  int32_t i = 0;
  while (true) {
    const int32_t first = kIsMirrored ? count - 16 - i : i;
    hn::Vec<Block> plane[3];
    hn::LoadInterleaved3(Block(), from + int64_t{3} * first, plane[0], plane[1],
                         plane[2]);
    for (int c = 0; c < 3; ++c) {
      if (kIsMirrored) plane[c] = hn::TableLookupBytes(plane[c], reversed);
      hn::StoreU(plane[c], Block(), planes + int64_t{c} * plane_stride + i);
    }
    if (i + 16 >= count) return;
    // The last block overlaps the one before it.
    i = i + 32 <= count ? i + 16 : count - 16;
  }
}

void SplitPixels3(const uint8_t* from, int32_t count, bool is_mirrored,
                  uint8_t* planes, int32_t plane_stride) {
  if (is_mirrored) {
    SplitPixels<true>(from, count, planes, plane_stride);
  } else {
    SplitPixels<false>(from, count, planes, plane_stride);
  }
}

void MirrorPixels3(const uint8_t* from, int32_t count, uint8_t* to) {
  // A 16-byte load holds five whole pixels; the 16th byte stored is overwritten
  // by the next store.
  alignas(16) static constexpr uint8_t kMirrored[16] = {
      13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, 0};
  const auto mirrored = hn::Load(Block(), kMirrored);
  int32_t i = 0;
  for (; i + 6 <= count; i += 5) {
    const auto pixels =
        hn::LoadU(Block(), from + int64_t{3} * (count - 5 - i) - 1);
    hn::StoreU(hn::TableLookupBytes(pixels, mirrored), Block(),
               to + int64_t{3} * i);
  }
  for (; i < count; ++i) {
    for (int c = 0; c < 3; ++c) to[3 * i + c] = from[3 * (count - 1 - i) + c];
  }
}

const ByteVector* GetByteVector() {
  static constexpr ByteVector kVector = {ConvertBytes, SplitPixels3,
                                         MirrorPixels3};
  return &kVector;
}

#else

const ByteVector* GetByteVector() { return nullptr; }

#endif

}  // namespace
}  // namespace datasetd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace datasetd {

const ByteVector* ByteVectorOf(HostTarget target) {
  static constexpr const ByteVector* (*kGet[])() =
      DATASETD_HOST_TABLE(GetByteVector);
  return kGet[static_cast<int>(target)]();
}

void StreamFence() { hwy::FlushStream(); }

}  // namespace datasetd

#endif  // HWY_ONCE
