#include "cuda/kernels/byte_vector.h"

#include <cstdint>

#include "cuda/dtype.h"

#if defined(__x86_64__)

// GCC 12 takes the undefined operands inside its own intrinsics for ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#define DATASETD_INLINE __attribute__((always_inline)) inline

namespace datasetd {
namespace {

// Each level is a struct of the same operations on its vectors, and one
// Convert, which must be compiled under the same target.
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
namespace avx2 {

struct Isa {
  using Vector = __m256;
  static constexpr int kLanes = 8;
  DATASETD_INLINE static Vector Splat(float x) { return _mm256_set1_ps(x); }
  DATASETD_INLINE static Vector Load(const float* from) {
    return _mm256_loadu_ps(from);
  }
  DATASETD_INLINE static Vector LoadBytes(const uint8_t* from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }
  DATASETD_INLINE static Vector Subtract(Vector x, Vector y) {
    return _mm256_sub_ps(x, y);
  }
  DATASETD_INLINE static Vector Divide(Vector x, Vector high, Vector low) {
    return _mm256_fmadd_ps(x, high, _mm256_mul_ps(x, low));
  }
  template <bool kIsStreamed>
  DATASETD_INLINE static void StoreFloat32(uint8_t* to, Vector x) {
    float* out = reinterpret_cast<float*>(to);
    kIsStreamed ? _mm256_stream_ps(out, x) : _mm256_storeu_ps(out, x);
  }
  template <bool kIsStreamed>
  DATASETD_INLINE static void StoreHalves(uint8_t* to, __m128i halves) {
    __m128i* out = reinterpret_cast<__m128i*>(to);
    kIsStreamed ? _mm_stream_si128(out, halves) : _mm_storeu_si128(out, halves);
  }
  template <bool kIsStreamed>
  DATASETD_INLINE static void StoreFloat16(uint8_t* to, Vector x) {
    StoreHalves<kIsStreamed>(to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  template <bool kIsStreamed>
  DATASETD_INLINE static void StoreBfloat16(uint8_t* to, Vector x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    StoreHalves<kIsStreamed>(
        to, _mm_packus_epi32(_mm256_castsi256_si128(rounded),
                             _mm256_extracti128_si256(rounded, 1)));
  }
};

#include "cuda/kernels/byte_vector_convert.inc"

}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
namespace avx512 {

struct Isa {
  using Vector = __m512;
  static constexpr int kLanes = 16;
  DATASETD_INLINE static Vector Splat(float x) { return _mm512_set1_ps(x); }
  DATASETD_INLINE static Vector Load(const float* from) {
    return _mm512_loadu_ps(from);
  }
  DATASETD_INLINE static Vector LoadBytes(const uint8_t* from) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }
  DATASETD_INLINE static Vector Subtract(Vector x, Vector y) {
    return _mm512_sub_ps(x, y);
  }
  DATASETD_INLINE static Vector Divide(Vector x, Vector high, Vector low) {
    return _mm512_fmadd_ps(x, high, _mm512_mul_ps(x, low));
  }
  template <bool kIsStreamed>
  DATASETD_INLINE static void StoreFloat32(uint8_t* to, Vector x) {
    float* out = reinterpret_cast<float*>(to);
    kIsStreamed ? _mm512_stream_ps(out, x) : _mm512_storeu_ps(out, x);
  }
  template <bool kIsStreamed>
  DATASETD_INLINE static void StoreHalves(uint8_t* to, __m256i halves) {
    __m256i* out = reinterpret_cast<__m256i*>(to);
    kIsStreamed ? _mm256_stream_si256(out, halves)
                : _mm256_storeu_si256(out, halves);
  }
  template <bool kIsStreamed>
  DATASETD_INLINE static void StoreFloat16(uint8_t* to, Vector x) {
    StoreHalves<kIsStreamed>(to, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  template <bool kIsStreamed>
  DATASETD_INLINE static void StoreBfloat16(uint8_t* to, Vector x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
    StoreHalves<kIsStreamed>(
        to, _mm512_cvtepi32_epi16(
                _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16)));
  }
};

#include "cuda/kernels/byte_vector_convert.inc"

}  // namespace avx512
#pragma GCC pop_options

// Shuffles that gather channel c of 16 pixels from each third of 48 bytes.
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

VectorLevel FindLevel() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return VectorLevel::kNone;
  }
  return __builtin_cpu_supports("avx512f") &&
                 __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl")
             ? VectorLevel::kAvx512
             : VectorLevel::kAvx2;
}

}  // namespace

VectorLevel BestVectorLevel() {
  static const VectorLevel level = FindLevel();
  return level;
}

int64_t ConvertBytesVector(VectorLevel level, const uint8_t* from,
                           int64_t count, const VectorChain& chain,
                           int first_channel, int num_channels, Dtype dtype,
                           uint8_t* to) {
  return level == VectorLevel::kAvx512
             ? avx512::Dispatch(from, count, chain, first_channel, num_channels,
                                dtype, to)
             : avx2::Dispatch(from, count, chain, first_channel, num_channels,
                              dtype, to);
}

void StreamFence() { _mm_sfence(); }

__attribute__((target("avx2"))) void SplitPixels3Vector(
    const uint8_t* from, int32_t count, bool is_mirrored, uint8_t* planes,
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
  // Five pixels that end a load of 16 bytes; the byte stored after them belongs
  // to the next ones.
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

#else  // !defined(__x86_64__)

namespace datasetd {

VectorLevel BestVectorLevel() { return VectorLevel::kNone; }

int64_t ConvertBytesVector(VectorLevel, const uint8_t*, int64_t,
                           const VectorChain&, int, int, Dtype, uint8_t*) {
  return 0;
}

void StreamFence() {}

void SplitPixels3Vector(const uint8_t*, int32_t, bool, uint8_t*, int32_t) {}

void MirrorPixels3Vector(const uint8_t*, int32_t, uint8_t*) {}

}  // namespace datasetd

#endif  // defined(__x86_64__)
