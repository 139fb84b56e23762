// Invert and RandomInvert: bound - x.

#ifndef DATASETD_CUDA_KERNELS_OPS_INVERT_H_
#define DATASETD_CUDA_KERNELS_OPS_INVERT_H_

#include "cuda/kernels/math/host_device.h"

namespace datasetd {

struct InvertParams {
  float bound;  // 255 or 1
};
using InvertDraw = InvertParams;

DATASETD_HOST_DEVICE inline void ApplyInvert(const InvertDraw& draw,
                                             int num_channels, float* pixel) {
  for (int c = 0; c < num_channels; ++c) pixel[c] = draw.bound - pixel[c];
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_INVERT_H_
