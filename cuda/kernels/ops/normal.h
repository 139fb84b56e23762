// Standard normal numbers of a pixel: Box and Muller's, from one draw.

#ifndef DATASETD_CUDA_KERNELS_OPS_NORMAL_H_
#define DATASETD_CUDA_KERNELS_OPS_NORMAL_H_

#include <cstdint>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// Draw of pixel 0; pixel i takes the i-th one after it.
inline constexpr uint32_t kFirstNormalDraw = 16;

namespace normal_internal {

struct Normals2 {
  float first, second;
};

// Returns two independent standard normal numbers.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE Normals2
NormalPair(uint32_t word0, uint32_t word1) {
  // In (0, 1], so the largest magnitude is sqrt(2 ln 2^32) = 6.66.
  const double uniform =
      (static_cast<double>(word0) + 1.0) * (1.0 / 4294967296.0);
  const double radius = Sqrt(-2.0 * Log(uniform));
  const SinCos angle =
      SinCosPi(static_cast<double>(word1) * (1.0 / 2147483648.0));
  return {static_cast<float>(radius * angle.cos),
          static_cast<float>(radius * angle.sin)};
}

}  // namespace normal_internal

// Computes the numbers of pixel (y, x) of an image of `width` columns: words 0
// and 1 give those of channels 0 and 1, words 2 and 3 those of 2 and 3.
// REQUIRES: the image has less than 2^31 pixels.
DATASETD_HOST_DEVICE inline void DrawNormalPixel(
    const DrawKey& key, int y, int x, int width,
    float (&normal)[kMaxChannels]) {
  const uint32_t index =
      static_cast<uint32_t>(y) * static_cast<uint32_t>(width) +
      static_cast<uint32_t>(x);
  const Words4 words = DrawWords(key, kFirstNormalDraw + index);
  const auto [n0, n1] =
      normal_internal::NormalPair(words.word[0], words.word[1]);
  const auto [n2, n3] =
      normal_internal::NormalPair(words.word[2], words.word[3]);
  normal[0] = n0;
  normal[1] = n1;
  normal[2] = n2;
  normal[3] = n3;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_NORMAL_H_
