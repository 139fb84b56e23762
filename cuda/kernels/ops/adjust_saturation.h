// AdjustSaturation: factor * x + (1 - factor) * gray in [0, bound]. Images of
// one channel are unchanged.

#ifndef DATASETD_CUDA_KERNELS_OPS_ADJUST_SATURATION_H_
#define DATASETD_CUDA_KERNELS_OPS_ADJUST_SATURATION_H_

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/pixel.h"

namespace datasetd {

struct AdjustSaturationParams {
  static constexpr bool kIsBlend = true;

  float factor;  // not negative
  float bound;   // 255 or 1
};
using AdjustSaturationDraw = AdjustSaturationParams;

template <typename Visit>
void VisitDrawn(const AdjustSaturationDraw& draw, const Visit& visit) {
  visit("saturation_factor", draw.factor);
}

// REQUIRES: 1 or 3 channels.
DATASETD_HOST_DEVICE inline void ApplyAdjustSaturation(
    const AdjustSaturationDraw& draw, int num_channels, float* pixel) {
  if (num_channels != 3) return;
  const float gray = Luma(pixel, draw.bound);
  for (int c = 0; c < 3; ++c) {
    pixel[c] = Blend(pixel[c], gray, draw.factor, draw.bound);
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_ADJUST_SATURATION_H_
