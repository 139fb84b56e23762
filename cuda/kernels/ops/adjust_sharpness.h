// AdjustSharpness and RandomAdjustSharpness: factor * x + (1 - factor) *
// blurred in [0, bound]. Blurred is the mean of the 3x3 neighbours with the
// middle five times; at the image's edge it is x. An image of at most 2 rows or
// columns stays as it is.
//
// Blurred is rounded for a uint8 image, as in torchvision, which then drops the
// result's fraction: at most 1/255 from here.

#ifndef DATASETD_CUDA_KERNELS_OPS_ADJUST_SHARPNESS_H_
#define DATASETD_CUDA_KERNELS_OPS_ADJUST_SHARPNESS_H_

#include <cstdint>

#include "cuda/kernels/elementary.h"
#include "cuda/kernels/host_device.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/pixel.h"

namespace datasetd {

struct AdjustSharpnessParams {
  float factor;  // not negative
  float bound;   // 255 or 1
};
using AdjustSharpnessDraw = AdjustSharpnessParams;

DATASETD_HOST_DEVICE inline AdjustSharpnessDraw DrawAdjustSharpness(
    const AdjustSharpnessParams& params, const DrawKey&, int /*height*/,
    int /*width*/) {
  return params;
}

// The result at (y, x) of a plane [height, width].
DATASETD_HOST_DEVICE inline float ApplyAdjustSharpness(
    const AdjustSharpnessDraw& draw, const float* plane, int height, int width,
    int y, int x) {
  const int64_t stride = width;
  const float* at = plane + y * stride + x;
  if (height <= 2 || width <= 2) return *at;
  float blurred = *at;
  if (y > 0 && y < height - 1 && x > 0 && x < width - 1) {
    const float* above = at - stride;
    const float* below = at + stride;
    const float sum = ((above[-1] + above[0] + above[1]) + (at[-1] + at[1]) +
                       (below[-1] + below[0] + below[1])) +
                      5.0f * at[0];
    blurred = sum / 13.0f;
    if (draw.bound == 255.0f) blurred = RoundHalfEven(blurred);
  }
  return Blend(*at, blurred, draw.factor, draw.bound);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_ADJUST_SHARPNESS_H_
