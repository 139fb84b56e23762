// AdjustBrightness: factor * x in [0, bound].

#ifndef DATASETD_CUDA_KERNELS_OPS_ADJUST_BRIGHTNESS_H_
#define DATASETD_CUDA_KERNELS_OPS_ADJUST_BRIGHTNESS_H_

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/pixel.h"

namespace datasetd {

struct AdjustBrightnessParams {
  static constexpr bool kIsBlend = true;

  float factor;  // not negative
  float bound;   // 255 or 1
};
using AdjustBrightnessDraw = AdjustBrightnessParams;

template <typename Visit>
void VisitDrawn(const AdjustBrightnessDraw& draw, const Visit& visit) {
  visit("brightness_factor", draw.factor);
}

DATASETD_HOST_DEVICE inline void ApplyAdjustBrightness(
    const AdjustBrightnessDraw& draw, int num_channels, float* pixel) {
  for (int c = 0; c < num_channels; ++c) {
    pixel[c] = ClampToBound(draw.factor * pixel[c], draw.bound);
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_ADJUST_BRIGHTNESS_H_
