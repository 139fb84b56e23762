// Grayscale and RandomGrayscale: sets each output channel to torchvision's
// gray. A single channel is its own gray.
//
// Exact for uint8 images; for the fraction see Luma in pixel.h.

#ifndef DATASETD_CUDA_KERNELS_OPS_GRAYSCALE_H_
#define DATASETD_CUDA_KERNELS_OPS_GRAYSCALE_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/pixel.h"

namespace datasetd {

struct GrayscaleParams {
  int32_t num_output_channels;  // 1 or 3
  float bound;                  // 255 or 1
};
using GrayscaleDraw = GrayscaleParams;

template <typename Visit>
void VisitDrawn(const GrayscaleDraw& draw, const Visit& visit) {
  visit("num_output_channels", draw.num_output_channels);
}

// REQUIRES: 1 or 3 channels; `pixel` has room for the output's.
DATASETD_HOST_DEVICE inline void ApplyGrayscale(const GrayscaleDraw& draw,
                                                int num_channels,
                                                float* pixel) {
  const float gray = num_channels == 3 ? Luma(pixel, draw.bound) : pixel[0];
  DATASETD_UNROLL
  for (int c = 0; c < 3; ++c) {
    if (c < draw.num_output_channels) pixel[c] = gray;
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_GRAYSCALE_H_
