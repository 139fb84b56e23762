// HostVector with AVX2. Included under that target pragma, before the executor.

#ifndef DATASETD_CUDA_KERNELS_HOST_HOST_VECTOR_AVX2_H_
#define DATASETD_CUDA_KERNELS_HOST_HOST_VECTOR_AVX2_H_

#include <immintrin.h>

#include <cstdint>

#include "cuda/kernels/host/host_team.h"
#include "cuda/kernels/math/rounding.h"

namespace datasetd {

template <>
struct HostVector<HostIsa::kAvx2> {
  using Floats = __m256;
  using Offsets = __m256i;

  static constexpr int kFloats = 8;
  static constexpr bool kCanPick = true;

  static Floats Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(Floats x, float* to) { _mm256_storeu_ps(to, x); }
  static Floats Add(Floats x, Floats y) { return _mm256_add_ps(x, y); }
  static Floats Multiply(Floats x, Floats y) { return _mm256_mul_ps(x, y); }

  static Floats All(float x) { return _mm256_set1_ps(x); }
  // Clamps to 0..bound; NaN stays NaN.
  static Floats Clamp(Floats x, Floats bound) {
    return _mm256_min_ps(bound, _mm256_max_ps(_mm256_setzero_ps(), x));
  }

  // Returns index[k] - base for kFloats indices.
  static Offsets OffsetsFrom(const int32_t* index, int32_t base) {
    return _mm256_sub_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index)),
        _mm256_set1_epi32(base));
  }
  // Lane k of the result is element offsets[k] of x, or of x and y.
  static Floats Pick(Floats x, Offsets offsets) {
    return _mm256_permutevar8x32_ps(x, offsets);
  }
  static Floats Pick(Floats x, Floats y, Offsets offsets) {
    // Move bit 3 of the offset to the sign bit.
    return _mm256_blendv_ps(
        Pick(x, offsets), Pick(y, offsets),
        _mm256_castsi256_ps(_mm256_slli_epi32(offsets, 28)));
  }

  // Stores CanonicalFloat(x), bypassing the caches. REQUIRES: `to` is aligned.
  static void Stream(Floats x, float* to) {
    const __m256 nan =
        _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(kNanFloat32)));
    _mm256_stream_ps(
        to, _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  }

  // Splits bytes of kFloats interleaved three-channel pixels into one row per
  // channel.
  static void SplitRgb(const uint8_t* from, float* to0, float* to1,
                       float* to2) {
    // Four pixels per 16-byte part, of which the last four bytes are unused.
    const __m256i pixels = _mm256_permutevar8x32_epi32(
        _mm256_maskload_epi32(reinterpret_cast<const int*>(from),
                              _mm256_setr_epi32(-1, -1, -1, -1, -1, -1, 0, 0)),
        _mm256_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5));
    const __m256i first = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, -1, -1, -1, 3, -1, -1, -1, 6, -1, -1, -1, 9, -1, -1, -1));
    const __m256i next = _mm256_set1_epi32(1);
    const __m256i second = _mm256_add_epi32(first, next);
    const __m256i third = _mm256_add_epi32(second, next);
    Store(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(pixels, first)), to0);
    Store(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(pixels, second)), to1);
    Store(_mm256_cvtepi32_ps(_mm256_shuffle_epi8(pixels, third)), to2);
  }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_HOST_VECTOR_AVX2_H_
