// Functions shared by the colour ops.
//
// For uint8 images torchvision truncates the results of AdjustBrightness,
// AdjustContrast, AdjustHue and AdjustSaturation, which differ from ours by at
// most 1/255.

#ifndef DATASETD_CUDA_KERNELS_OPS_PIXEL_H_
#define DATASETD_CUDA_KERNELS_OPS_PIXEL_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"

namespace datasetd {

// Returns 0. REQUIRES: `bound` is finite and not negative. GCC's vectors clamp
// to a constant 0 by two instructions, and to a variable by one.
DATASETD_HOST_DEVICE inline float ZeroOf([[maybe_unused]] float bound) {
#if defined(__CUDA_ARCH__)
  return 0.0f;
#else
  return bound * 0.0f;
#endif
}

// Clamps to [0, bound]; NaN stays NaN.
DATASETD_HOST_DEVICE inline float ClampToBound(float x, float bound) {
  const float zero = ZeroOf(bound);
  x = x < zero ? zero : x;
  return x > bound ? bound : x;
}

// Returns ratio * a + (1 - ratio) * b in [0, bound], as torchvision.
DATASETD_HOST_DEVICE inline float Blend(float a, float b, float ratio,
                                        float bound) {
  return ClampToBound(ratio * a + (1.0f - ratio) * b, bound);
}

// Returns torchvision's gray of a pixel [3]. For uint8 images (bound 255) it is
// truncated in float32 as in torchvision: blends would amplify a difference,
// since 0.9999 * v becomes v - 1.
DATASETD_HOST_DEVICE inline float Luma(const float* pixel, float bound) {
  const float luma = 0.2989f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2];
  const float zero = ZeroOf(bound);
  const float positive = luma > zero ? luma : zero;
  const float finite = positive < 65536.0f ? positive : 65536.0f;
  const float whole = static_cast<float>(static_cast<int32_t>(finite));
  return bound == 255.0f ? whole : luma;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_PIXEL_H_
