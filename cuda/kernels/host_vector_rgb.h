// Interleaved bytes of three channels, taken apart. Included by the builds'
// headers within their target.

#ifndef DATASETD_CUDA_KERNELS_HOST_VECTOR_RGB_H_
#define DATASETD_CUDA_KERNELS_HOST_VECTOR_RGB_H_

#include <immintrin.h>

#include <cstdint>

#include "cuda/kernels/host_team.h"

namespace datasetd {

template <HostIsa kIsa>
struct RgbBytes {
  // 16 pixels, from 48 bytes.
  static constexpr int kPixels = 16;

  __m128i channel[3];

  explicit RgbBytes(const uint8_t* from) {
    __m128i part[3];
    for (int i = 0; i < 3; ++i) {
      part[i] =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 16 * i));
    }
    // Byte 3 k + c of all, for pixel k; from a part that has not got it, 0.
    const __m128i red[3] = {
        _mm_setr_epi8(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                      -1),
        _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1,
                      -1),
        _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10,
                      13)};
    const __m128i green[3] = {
        _mm_setr_epi8(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                      -1),
        _mm_setr_epi8(-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1,
                      -1),
        _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11,
                      14)};
    const __m128i blue[3] = {
        _mm_setr_epi8(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                      -1),
        _mm_setr_epi8(-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1,
                      -1),
        _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12,
                      15)};
    channel[0] = Pick(part, red);
    channel[1] = Pick(part, green);
    channel[2] = Pick(part, blue);
  }

 private:
  static __m128i Pick(const __m128i* part, const __m128i* at) {
    return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(part[0], at[0]),
                                     _mm_shuffle_epi8(part[1], at[1])),
                        _mm_shuffle_epi8(part[2], at[2]));
  }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_VECTOR_RGB_H_
