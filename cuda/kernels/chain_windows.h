// The neighbourhood ops as classes, for WindowLanes.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_WINDOWS_H_
#define DATASETD_CUDA_KERNELS_CHAIN_WINDOWS_H_

#include "cuda/kernels/host_device.h"
#include "cuda/kernels/ops/adjust_sharpness.h"
#include "cuda/kernels/ops/gaussian_blur.h"

namespace datasetd {

struct SharpnessWindow {
  AdjustSharpnessDraw draw;
  DATASETD_HOST_DEVICE float Apply(const float* plane, int height, int width,
                                   int y, int x) const {
    return ApplyAdjustSharpness(draw, plane, height, width, y, x);
  }
};

struct BlurWindowX {
  GaussianBlurDraw draw;
  DATASETD_HOST_DEVICE float Apply(const float* plane, int height, int width,
                                   int y, int x) const {
    return ApplyGaussianBlurX(draw, plane, height, width, y, x);
  }
};

struct BlurWindowY {
  GaussianBlurDraw draw;
  DATASETD_HOST_DEVICE float Apply(const float* plane, int height, int width,
                                   int y, int x) const {
    return ApplyGaussianBlurY(draw, plane, height, width, y, x);
  }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_WINDOWS_H_
