// AdjustHue: the hue of HSV turned by `factor` turns. One channel stays as it
// is.
//
// Of a uint8 image torchvision drops the fraction: at most 1/255 from here.

#ifndef DATASETD_CUDA_KERNELS_OPS_ADJUST_HUE_H_
#define DATASETD_CUDA_KERNELS_OPS_ADJUST_HUE_H_

#include "cuda/kernels/host_device.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/pixel.h"

namespace datasetd {

struct AdjustHueParams {
  float factor;  // in [-0.5, 0.5]
  float bound;   // 255 or 1
};
using AdjustHueDraw = AdjustHueParams;

DATASETD_HOST_DEVICE inline AdjustHueDraw DrawAdjustHue(
    const AdjustHueParams& params, const DrawKey&, int /*height*/,
    int /*width*/) {
  return params;
}

// REQUIRES: 1 or 3 channels.
DATASETD_HOST_DEVICE inline void ApplyAdjustHue(const AdjustHueDraw& draw,
                                                int num_channels,
                                                float* pixel) {
  if (num_channels != 3) return;
  const float r = pixel[0] / draw.bound;
  const float g = pixel[1] / draw.bound;
  const float b = pixel[2] / draw.bound;
  const float rg_max = r > g ? r : g;
  const float rg_min = r < g ? r : g;
  const float value = rg_max > b ? rg_max : b;
  const float chroma = value - (rg_min < b ? rg_min : b);
  const bool is_gray = chroma == 0.0f;
  const float saturation = chroma / (is_gray ? 1.0f : value);
  const float divisor = is_gray ? 1.0f : chroma;
  const float rc = (value - r) / divisor;
  const float gc = (value - g) / divisor;
  const float bc = (value - b) / divisor;

  // In sixths of a turn: [-1, 5], as a fraction [5/6, 11/6].
  const float sixths = value == r   ? bc - gc
                       : value == g ? 2.0f + rc - bc
                                    : 4.0f + gc - rc;
  float hue = sixths / 6.0f + 1.0f;
  hue = hue >= 1.0f ? hue - 1.0f : hue;
  hue = hue + draw.factor;
  hue = hue < 0.0f ? hue + 1.0f : hue;
  hue = hue >= 1.0f ? hue - 1.0f : hue;

  const float scaled = hue * 6.0f;
  // NaN, and what rounds to a whole turn, is in the first sixth.
  const int sector =
      scaled > 0.0f && scaled < 6.0f ? static_cast<int>(scaled) : 0;
  const float f = sector == 0 && scaled >= 6.0f
                      ? 0.0f
                      : scaled - static_cast<float>(sector);
  const float p = ClampToBound(value * (1.0f - saturation), 1.0f);
  const float q = ClampToBound(value * (1.0f - saturation * f), 1.0f);
  const float t = ClampToBound(value * (1.0f - saturation * (1.0f - f)), 1.0f);
  const float red = sector == 0 || sector == 5 ? value
                    : sector == 1              ? q
                    : sector == 4              ? t
                                               : p;
  const float green = sector == 1 || sector == 2 ? value
                      : sector == 0              ? t
                      : sector == 3              ? q
                                                 : p;
  const float blue = sector == 3 || sector == 4 ? value
                     : sector == 2              ? t
                     : sector == 5              ? q
                                                : p;
  pixel[0] = red * draw.bound;
  pixel[1] = green * draw.bound;
  pixel[2] = blue * draw.bound;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_ADJUST_HUE_H_
