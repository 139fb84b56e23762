#include "cuda/kernels/host/byte_vector.h"

#include <cstdint>

#include "base/dtype.h"

// clang, which builds the fuzzers, has no target pragma and uses the plain
// code.
#if defined(__x86_64__) && !defined(__clang__)

#include <immintrin.h>

#define DATASETD_INLINE __attribute__((always_inline)) inline

namespace datasetd {
namespace {

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

inline constexpr int kLanes = 8;

DATASETD_INLINE __m256 LoadBytes(const uint8_t* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}

DATASETD_INLINE __m256 Divide(__m256 x, __m256 high, __m256 low) {
  return _mm256_fmadd_ps(x, high, _mm256_mul_ps(x, low));
}

// Rounds to nearest even. REQUIRES: no NaN.
DATASETD_INLINE __m128i RoundToBfloat16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd =
      _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded),
                          _mm256_extracti128_si256(rounded, 1));
}

template <Dtype kDtype, bool kIsStreamed>
DATASETD_INLINE void Store(uint8_t* to, __m256 x) {
  if constexpr (kDtype == Dtype::kFloat32) {
    float* out = reinterpret_cast<float*>(to);
    kIsStreamed ? _mm256_stream_ps(out, x) : _mm256_storeu_ps(out, x);
  } else {
    __m128i halves;
    if constexpr (kDtype == Dtype::kFloat16) {
      halves = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    } else {
      halves = RoundToBfloat16(x);
    }
    __m128i* out = reinterpret_cast<__m128i*>(to);
    kIsStreamed ? _mm_stream_si128(out, halves) : _mm_storeu_si128(out, halves);
  }
}

// kVectors vectors of bytes hold whole periods of the channels.
template <Dtype kDtype, bool kHasDivide, bool kHasNormalize, int kVectors,
          bool kIsStreamed>
int64_t Convert(const uint8_t* from, int64_t count, const VectorChain& chain,
                int first_channel, int num_channels, uint8_t* to) {
  constexpr int kBlock = kLanes * kVectors;
  constexpr int kSizeBytes = DtypeSizeBytes(kDtype);
  const __m256 divide_high = _mm256_set1_ps(chain.divide.high);
  const __m256 divide_low = _mm256_set1_ps(chain.divide.low);
  float mean[kBlock], high[kBlock], low[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const int channel = first_channel + i % num_channels;
    mean[i] = chain.mean[channel];
    high[i] = chain.std[channel].high;
    low[i] = chain.std[channel].low;
  }
  __m256 means[kVectors], highs[kVectors], lows[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    means[v] = _mm256_loadu_ps(mean + v * kLanes);
    highs[v] = _mm256_loadu_ps(high + v * kLanes);
    lows[v] = _mm256_loadu_ps(low + v * kLanes);
  }
  int64_t done = 0;
  for (; done + kBlock <= count; done += kBlock) {
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = done + v * kLanes;
      __m256 x = LoadBytes(from + at);
      if constexpr (kHasDivide) x = Divide(x, divide_high, divide_low);
      if constexpr (kHasNormalize) {
        x = Divide(_mm256_sub_ps(x, means[v]), highs[v], lows[v]);
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

#pragma GCC pop_options

// Shuffle masks that gather channel c of 16 pixels from each third of 48 bytes.
struct SplitMasks {
  alignas(16) int8_t mask[2][3][3][16];  // [mirrored][channel][third][byte]
};

constexpr SplitMasks MakeSplitMasks() {
  SplitMasks masks = {};
  for (int mirrored = 0; mirrored < 2; ++mirrored) {
    for (int c = 0; c < 3; ++c) {
      for (int third = 0; third < 3; ++third) {
        for (int i = 0; i < 16; ++i) {
          const int byte = 3 * (mirrored ? 15 - i : i) + c - 16 * third;
          masks.mask[mirrored][c][third][i] =
              byte >= 0 && byte < 16 ? static_cast<int8_t>(byte) : int8_t{-1};
        }
      }
    }
  }
  return masks;
}

constexpr SplitMasks kSplitMasks = MakeSplitMasks();

}  // namespace

bool HasByteVector() {
  static const bool has = __builtin_cpu_supports("avx2") &&
                          __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("f16c");
  return has;
}

int64_t ConvertBytesVector(const uint8_t* from, int64_t count,
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

void StreamFence() { _mm_sfence(); }

__attribute__((target("avx2"))) void SplitPixels3Vector(const uint8_t* from,
                                                        int32_t count,
                                                        bool is_mirrored,
                                                        uint8_t* planes,
                                                        int32_t plane_stride) {
  __m128i masks[3][3];
  for (int c = 0; c < 3; ++c) {
    for (int third = 0; third < 3; ++third) {
      masks[c][third] = _mm_load_si128(reinterpret_cast<const __m128i*>(
          kSplitMasks.mask[is_mirrored ? 1 : 0][c][third]));
    }
  }
  int32_t i = 0;
  while (true) {
    const int32_t first = is_mirrored ? count - 16 - i : i;
    const __m128i* block =
        reinterpret_cast<const __m128i*>(from + int64_t{3} * first);
    const __m128i a = _mm_loadu_si128(block);
    const __m128i b = _mm_loadu_si128(block + 1);
    const __m128i d = _mm_loadu_si128(block + 2);
    for (int c = 0; c < 3; ++c) {
      _mm_storeu_si128(
          reinterpret_cast<__m128i*>(planes + int64_t{c} * plane_stride + i),
          _mm_or_si128(_mm_shuffle_epi8(a, masks[c][0]),
                       _mm_or_si128(_mm_shuffle_epi8(b, masks[c][1]),
                                    _mm_shuffle_epi8(d, masks[c][2]))));
    }
    if (i + 16 >= count) return;
    // The last block overlaps the one before it.
    i = i + 32 <= count ? i + 16 : count - 16;
  }
}

__attribute__((target("avx2"))) void MirrorPixels3Vector(const uint8_t* from,
                                                         int32_t count,
                                                         uint8_t* to) {
  // A 16-byte load holds five whole pixels; the 16th byte stored is overwritten
  // by the next store.
  const __m128i mask =
      _mm_setr_epi8(13, 14, 15, 10, 11, 12, 7, 8, 9, 4, 5, 6, 1, 2, 3, -1);
  int32_t i = 0;
  for (; i + 6 <= count; i += 5) {
    const __m128i pixels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(
        from + int64_t{3} * (count - 5 - i) - 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + int64_t{3} * i),
                     _mm_shuffle_epi8(pixels, mask));
  }
  for (; i < count; ++i) {
    for (int c = 0; c < 3; ++c) to[3 * i + c] = from[3 * (count - 1 - i) + c];
  }
}

}  // namespace datasetd

#else  // of the condition above

namespace datasetd {

bool HasByteVector() { return false; }

int64_t ConvertBytesVector(const uint8_t*, int64_t, const VectorChain&, int,
                           int, Dtype, uint8_t*) {
  return 0;
}

void StreamFence() {}

void SplitPixels3Vector(const uint8_t*, int32_t, bool, uint8_t*, int32_t) {}

void MirrorPixels3Vector(const uint8_t*, int32_t, uint8_t*) {}

}  // namespace datasetd

#endif
