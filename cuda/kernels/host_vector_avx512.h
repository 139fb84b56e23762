// HostVector with AVX-512. Included within that target, before the executor.

#ifndef DATASETD_CUDA_KERNELS_HOST_VECTOR_AVX512_H_
#define DATASETD_CUDA_KERNELS_HOST_VECTOR_AVX512_H_

#include <immintrin.h>

#include <cstdint>

#include "cuda/kernels/host_team.h"
#include "cuda/kernels/host_vector_rgb.h"
#include "cuda/kernels/rounding.h"

namespace datasetd {

template <>
struct HostVector<HostIsa::kAvx512> {
  using Floats = __m512;
  using Rgb = RgbBytes<HostIsa::kAvx512>;

  static constexpr int kFloats = 16;

  static Floats Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Store(Floats x, float* to) { _mm512_storeu_ps(to, x); }
  static Floats Add(Floats x, Floats y) { return _mm512_add_ps(x, y); }
  static Floats Multiply(Floats x, Floats y) { return _mm512_mul_ps(x, y); }

  static Floats All(float x) { return _mm512_set1_ps(x); }
  // Within 0..bound; NaN stays.
  static Floats Clamp(Floats x, Floats bound) {
    return _mm512_min_ps(bound, _mm512_max_ps(_mm512_setzero_ps(), x));
  }

  // from[index[k]] for kFloats indices, of base .. base + kVectors * kFloats.
  // Reads all of these.
  template <int kVectors>
  static Floats LoadAt(const float* from, const int32_t* index, int32_t base) {
    const __m512i offset =
        _mm512_sub_epi32(_mm512_loadu_si512(index), _mm512_set1_epi32(base));
    const __m512 low = _mm512_loadu_ps(from + base);
    if constexpr (kVectors == 1) {
      return _mm512_permutexvar_ps(offset, low);
    } else {
      return _mm512_permutex2var_ps(low, offset,
                                    _mm512_loadu_ps(from + base + 16));
    }
  }

  // As CanonicalFloat, past the caches. REQUIRES: `to` aligned.
  static void Stream(Floats x, float* to) {
    const __m512 nan = _mm512_castsi512_ps(
        _mm512_set1_epi32(static_cast<int>(kNanFloat32)));
    _mm512_stream_ps(
        to,
        _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan));
  }

  // Rgb::kPixels of them.
  static void StoreBytes(__m128i bytes, float* to) {
    Store(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), to);
  }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_VECTOR_AVX512_H_
