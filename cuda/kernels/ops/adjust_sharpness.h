// AdjustSharpness and RandomAdjustSharpness: factor * x + (1 - factor) *
// blurred in [0, bound]. `blurred` is the mean of the 3x3 window with the
// centre weighted 5; at the image's edge it is x. Images of at most 2 rows or
// columns are unchanged.
//
// For uint8 images `blurred` is rounded, as in torchvision. torchvision also
// truncates the result, which differs from this by at most 1/255.

#ifndef DATASETD_CUDA_KERNELS_OPS_ADJUST_SHARPNESS_H_
#define DATASETD_CUDA_KERNELS_OPS_ADJUST_SHARPNESS_H_

#include <cstdint>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/pixel.h"

namespace datasetd {

struct AdjustSharpnessParams {
  static constexpr bool kIsBlend = true;
  static constexpr int kOperationsPerElement = 16;

  float factor;  // not negative
  float bound;   // 255 or 1
};
using AdjustSharpnessDraw = AdjustSharpnessParams;

template <typename Visit>
void VisitDrawn(const AdjustSharpnessDraw& draw, const Visit& visit) {
  visit("sharpness_factor", draw.factor);
}

// Returns the result at `at`, a pixel that is not on the edge of its plane,
// whose rows have `width` pixels.
DATASETD_HOST_DEVICE inline float SharpnessInside(
    const AdjustSharpnessDraw& draw, const float* at, int width) {
  const float* above = at - width;
  const float* below = at + width;
  const float sum = ((above[-1] + above[0] + above[1]) + (at[-1] + at[1]) +
                     (below[-1] + below[0] + below[1])) +
                    5.0f * at[0];
  const float blurred = sum / 13.0f;
  const float whole = RoundHalfEven(blurred);
  return Blend(*at, draw.bound == 255.0f ? whole : blurred, draw.factor,
               draw.bound);
}

// Returns the result at (y, x) of a plane [height, width].
DATASETD_HOST_DEVICE inline float ApplyAdjustSharpness(
    const AdjustSharpnessDraw& draw, const float* plane, int height, int width,
    int y, int x) {
  const float* at = plane + static_cast<int64_t>(y) * width + x;
  if (height <= 2 || width <= 2) return *at;
  if (y > 0 && y < height - 1 && x > 0 && x < width - 1) {
    return SharpnessInside(draw, at, width);
  }
  return Blend(*at, *at, draw.factor, draw.bound);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_ADJUST_SHARPNESS_H_
