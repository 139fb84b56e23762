// Posterize and RandomPosterize: keeps the upper `bits` bits of a uint8 image,
// or maps a floating point image to 2^bits levels k / 2^bits. Exact; in uint8
// images values that are not integers are rounded first.

#ifndef DATASETD_CUDA_KERNELS_OPS_POSTERIZE_H_
#define DATASETD_CUDA_KERNELS_OPS_POSTERIZE_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"

namespace datasetd {

struct PosterizeParams {
  int32_t bits;  // 0 to 8
  float bound;   // 255 or 1
};
using PosterizeDraw = PosterizeParams;

template <typename Visit>
void VisitDrawn(const PosterizeDraw& draw, const Visit& visit) {
  visit("bits", draw.bits);
}

DATASETD_HOST_DEVICE inline void ApplyPosterize(const PosterizeDraw& draw,
                                                int num_channels,
                                                float* pixel) {
  if (draw.bound == 255.0f) {
    const int32_t mask = -(1 << (8 - draw.bits));
    for (int c = 0; c < num_channels; ++c) {
      pixel[c] = static_cast<float>(FloatToUint8(pixel[c]) & mask);
    }
    return;
  }
  // Powers of two, so that a product is the quotient.
  const float levels = static_cast<float>(1 << draw.bits);
  const float step = 1.0f / levels;
  for (int c = 0; c < num_channels; ++c) {
    // 1.0 belongs to the highest level. NaN becomes 0.
    float level = pixel[c] * levels;
    level = level > 0.0f ? level : 0.0f;
    level = level < levels - 1.0f ? level : levels - 1.0f;
    pixel[c] = static_cast<float>(static_cast<int32_t>(level)) * step;
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_POSTERIZE_H_
