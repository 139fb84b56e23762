// AdjustHue: rotates the HSV hue by `factor` turns. Images of one channel are
// unchanged.

#ifndef DATASETD_CUDA_KERNELS_OPS_ADJUST_HUE_H_
#define DATASETD_CUDA_KERNELS_OPS_ADJUST_HUE_H_

#include <cmath>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/pixel.h"

namespace datasetd {

struct AdjustHueParams {
  static constexpr bool kIsBlend = true;
  static constexpr int kOperationsPerElement = 16;

  float factor;  // in [-0.5, 0.5]
  float bound;   // 255 or 1
};
using AdjustHueDraw = AdjustHueParams;

template <typename Visit>
void VisitDrawn(const AdjustHueDraw& draw, const Visit& visit) {
  visit("hue_factor", draw.factor);
}

// Branch-free, so that it vectorises. REQUIRES: 1 or 3 channels.
DATASETD_HOST_DEVICE inline void ApplyAdjustHue(const AdjustHueDraw& draw,
                                                int num_channels,
                                                float* pixel) {
  if (num_channels != 3) return;
  const float r = pixel[0];
  const float g = pixel[1];
  const float b = pixel[2];
  const float rg_max = r > g ? r : g;
  const float rg_min = r < g ? r : g;
  const float value = rg_max > b ? rg_max : b;
  const float chroma = value - (rg_min < b ? rg_min : b);
  const float divisor = chroma == 0.0f ? 1.0f : chroma;

  // In sixths of a turn from the colour of the largest channel.
  float difference = value == g ? b - r : r - g;
  float base = value == g ? 2.0f : 4.0f;
  difference = value == r ? g - b : difference;
  base = value == r ? 0.0f : base;
  float hue = base + difference / divisor;
  // Wrap to [0, 6]: the sum of [-1, 5] and [-3, 3].
  hue = hue + 6.0f * draw.factor;
  const float up = hue + 6.0f;
  hue = hue < 0.0f ? up : hue;
  const float down = hue - 6.0f;
  hue = hue >= 6.0f ? down : hue;

  // Loss of a channel: none within a sixth of its own colour, all chroma within
  // a sixth of the opposite colour, linear in between.
  const float red = 2.0f - fabsf(hue - 3.0f);
  const float green = fabsf(hue - 2.0f) - 1.0f;
  const float blue = fabsf(hue - 4.0f) - 1.0f;
  const float one = 1.0f + ZeroOf(draw.bound);
  pixel[0] = value - chroma * ClampToBound(red, one);
  pixel[1] = value - chroma * ClampToBound(green, one);
  pixel[2] = value - chroma * ClampToBound(blue, one);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_ADJUST_HUE_H_
