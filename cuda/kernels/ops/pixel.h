// What the colour ops share.

#ifndef DATASETD_CUDA_KERNELS_OPS_PIXEL_H_
#define DATASETD_CUDA_KERNELS_OPS_PIXEL_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"

namespace datasetd {

// Into [0, bound]; NaN stays NaN.
DATASETD_HOST_DEVICE inline float ClampToBound(float x, float bound) {
  x = x < 0.0f ? 0.0f : x;
  return x > bound ? bound : x;
}

// ratio * a + (1 - ratio) * b in [0, bound], as torchvision blends.
DATASETD_HOST_DEVICE inline float Blend(float a, float b, float ratio,
                                        float bound) {
  return ClampToBound(ratio * a + (1.0f - ratio) * b, bound);
}

// Torchvision's gray of a pixel [3]. Of a uint8 image (bound 255) it is whole:
// torchvision drops the fraction in float32, so that 0.9999 * v is v - 1, and
// blends amplify the difference.
DATASETD_HOST_DEVICE inline float Luma(const float* pixel, float bound) {
  const float luma = 0.2989f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2];
  const float positive = luma > 0.0f ? luma : 0.0f;
  const float finite = positive < 65536.0f ? positive : 65536.0f;
  const float whole = static_cast<float>(static_cast<int32_t>(finite));
  return bound == 255.0f ? whole : luma;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_PIXEL_H_
