// HostVector with AVX-512. Included under that target pragma, before the
// executor.

#ifndef DATASETD_CUDA_KERNELS_HOST_HOST_VECTOR_AVX512_H_
#define DATASETD_CUDA_KERNELS_HOST_HOST_VECTOR_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "cuda/kernels/host/host_team.h"
#include "cuda/kernels/math/rounding.h"

namespace datasetd {

template <>
struct HostVector<HostIsa::kAvx512> {
  using Floats = __m512;
  using Offsets = __m512i;

  static constexpr int kFloats = 16;
  static constexpr bool kCanPick = true;

  static Floats Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Store(Floats x, float* to) { _mm512_storeu_ps(to, x); }
  static Floats Add(Floats x, Floats y) { return _mm512_add_ps(x, y); }
  static Floats Multiply(Floats x, Floats y) { return _mm512_mul_ps(x, y); }

  static Floats All(float x) { return _mm512_set1_ps(x); }
  // Clamps to 0..bound; NaN stays NaN.
  static Floats Clamp(Floats x, Floats bound) {
    return _mm512_min_ps(bound, _mm512_max_ps(_mm512_setzero_ps(), x));
  }

  // Returns index[k] - base for kFloats indices.
  static Offsets OffsetsFrom(const int32_t* index, int32_t base) {
    return _mm512_sub_epi32(_mm512_loadu_si512(index), _mm512_set1_epi32(base));
  }
  // Lane k of the result is element offsets[k] of x, or of x and y.
  static Floats Pick(Floats x, Offsets offsets) {
    return _mm512_permutexvar_ps(offsets, x);
  }
  static Floats Pick(Floats x, Floats y, Offsets offsets) {
    return _mm512_permutex2var_ps(x, offsets, y);
  }

  // Stores CanonicalFloat(x), bypassing the caches. REQUIRES: `to` is aligned.
  static void Stream(Floats x, float* to) {
    const __m512 nan =
        _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(kNanFloat32)));
    _mm512_stream_ps(
        to, _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan));
  }

  // Splits bytes of kFloats interleaved three-channel pixels into one row per
  // channel.
  static void SplitRgb(const uint8_t* from, float* to0, float* to1,
                       float* to2) {
    // Four pixels per 16-byte part, of which the last four bytes are unused.
    const __m512i pixels = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 1, 2, 2, 3, 4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11),
        _mm512_maskz_loadu_epi32(0xFFF, from));
    const __m512i first = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, -1, -1, -1, 3, -1, -1, -1, 6, -1, -1, -1, 9, -1, -1, -1));
    const __m512i next = _mm512_set1_epi32(1);
    const __m512i second = _mm512_add_epi32(first, next);
    const __m512i third = _mm512_add_epi32(second, next);
    Store(_mm512_cvtepi32_ps(_mm512_shuffle_epi8(pixels, first)), to0);
    Store(_mm512_cvtepi32_ps(_mm512_shuffle_epi8(pixels, second)), to1);
    Store(_mm512_cvtepi32_ps(_mm512_shuffle_epi8(pixels, third)), to2);
  }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_HOST_VECTOR_AVX512_H_
