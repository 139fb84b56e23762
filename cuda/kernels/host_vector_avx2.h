// HostVector with AVX2. Included within that target, before the executor.

#ifndef DATASETD_CUDA_KERNELS_HOST_VECTOR_AVX2_H_
#define DATASETD_CUDA_KERNELS_HOST_VECTOR_AVX2_H_

#include <immintrin.h>

#include <cstdint>

#include "cuda/kernels/host_team.h"
#include "cuda/kernels/host_vector_rgb.h"
#include "cuda/kernels/rounding.h"

namespace datasetd {

template <>
struct HostVector<HostIsa::kAvx2> {
  using Floats = __m256;
  using Rgb = RgbBytes<HostIsa::kAvx2>;

  static constexpr int kFloats = 8;

  static Floats Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(Floats x, float* to) { _mm256_storeu_ps(to, x); }
  static Floats Add(Floats x, Floats y) { return _mm256_add_ps(x, y); }
  static Floats Multiply(Floats x, Floats y) { return _mm256_mul_ps(x, y); }

  static Floats All(float x) { return _mm256_set1_ps(x); }
  // Within 0..bound; NaN stays.
  static Floats Clamp(Floats x, Floats bound) {
    return _mm256_min_ps(bound, _mm256_max_ps(_mm256_setzero_ps(), x));
  }

  // from[index[k]] for kFloats indices, of base .. base + kVectors * kFloats.
  // Reads all of these.
  template <int kVectors>
  static Floats LoadAt(const float* from, const int32_t* index, int32_t base) {
    const __m256i offset = _mm256_sub_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index)),
        _mm256_set1_epi32(base));
    const __m256 low =
        _mm256_permutevar8x32_ps(_mm256_loadu_ps(from + base), offset);
    if constexpr (kVectors == 1) return low;
    const __m256 high =
        _mm256_permutevar8x32_ps(_mm256_loadu_ps(from + base + 8), offset);
    // Bit 3 of the offset to the place of the sign.
    return _mm256_blendv_ps(
        low, high, _mm256_castsi256_ps(_mm256_slli_epi32(offset, 28)));
  }

  // As CanonicalFloat, past the caches. REQUIRES: `to` aligned.
  static void Stream(Floats x, float* to) {
    const __m256 nan = _mm256_castsi256_ps(
        _mm256_set1_epi32(static_cast<int>(kNanFloat32)));
    _mm256_stream_ps(
        to, _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  }

  // Rgb::kPixels of them.
  static void StoreBytes(__m128i bytes, float* to) {
    Store(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)), to);
    Store(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))),
          to + 8);
  }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_VECTOR_AVX2_H_
