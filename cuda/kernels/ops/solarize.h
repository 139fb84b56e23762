// Solarize and RandomSolarize: bound - x for x >= threshold.

#ifndef DATASETD_CUDA_KERNELS_OPS_SOLARIZE_H_
#define DATASETD_CUDA_KERNELS_OPS_SOLARIZE_H_

#include "cuda/kernels/math/host_device.h"

namespace datasetd {

struct SolarizeParams {
  float threshold;  // in [0, bound]
  float bound;      // 255 or 1
};
using SolarizeDraw = SolarizeParams;

template <typename Visit>
void VisitDrawn(const SolarizeDraw& draw, const Visit& visit) {
  visit("threshold", draw.threshold);
}

DATASETD_HOST_DEVICE inline void ApplySolarize(const SolarizeDraw& draw,
                                               int num_channels, float* pixel) {
  for (int c = 0; c < num_channels; ++c) {
    const float x = pixel[c];
    pixel[c] = x >= draw.threshold ? draw.bound - x : x;
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_SOLARIZE_H_
