// Neighbourhood ops as classes, for WindowLanes.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WINDOWS_H_
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WINDOWS_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/adjust_sharpness.h"
#include "cuda/kernels/ops/gaussian_blur.h"

namespace datasetd {

// Apply() computes one pixel. ApplyRun() computes `count` pixels of a row from
// x on, none within Margin() of its ends, with the same bits.

struct SharpnessWindow {
  AdjustSharpnessDraw draw;

  DATASETD_HOST_DEVICE float Apply(const float* plane, int height, int width,
                                   int y, int x) const {
    return ApplyAdjustSharpness(draw, plane, height, width, y, x);
  }
  static int Margin() { return 1; }
  void ApplyRun(const float* plane, int height, int width, int y, int x,
                int count, float* to) const {
    if (y == 0 || y >= height - 1) {
      for (int k = 0; k < count; ++k) {
        to[k] = Apply(plane, height, width, y, x + k);
      }
      return;
    }
    const float* const at = plane + int64_t{y} * width + x;
    for (int k = 0; k < count; ++k) {
      to[k] = SharpnessInside(draw, at + k, width);
    }
  }
};

struct BlurWindowX {
  GaussianBlurDraw draw;

  DATASETD_HOST_DEVICE float Apply(const float* plane, int height, int width,
                                   int y, int x) const {
    return ApplyGaussianBlurX(draw, plane, height, width, y, x);
  }
  int Margin() const { return draw.radius_x; }
  void ApplyRun(const float* plane, int /*height*/, int width, int y, int x,
                int count, float* to) const {
    const float* const at = plane + int64_t{y} * width + x;
    for (int k = 0; k < count; ++k) to[k] = at[k];
    for (int i = 1; i <= draw.radius_x; ++i) {
      const float weight = draw.weights[i - 1];
      for (int k = 0; k < count; ++k) {
        to[k] += weight * (at[k - i] + at[k + i]);
      }
    }
    const float norm = draw.norm_x;
    for (int k = 0; k < count; ++k) to[k] = to[k] * norm;
  }
};

struct BlurWindowY {
  GaussianBlurDraw draw;

  DATASETD_HOST_DEVICE float Apply(const float* plane, int height, int width,
                                   int y, int x) const {
    return ApplyGaussianBlurY(draw, plane, height, width, y, x);
  }
  static int Margin() { return 0; }
  void ApplyRun(const float* plane, int height, int width, int y, int x,
                int count, float* to) const {
    const float* const at = plane + int64_t{y} * width + x;
    for (int k = 0; k < count; ++k) to[k] = at[k];
    for (int i = 1; i <= draw.radius_y; ++i) {
      const float weight = draw.weights[i - 1];
      const float* const before =
          plane + int64_t{MirroredBefore(y - i)} * width + x;
      const float* const after =
          plane + int64_t{MirroredAfter(y + i, height)} * width + x;
      for (int k = 0; k < count; ++k) {
        to[k] += weight * (before[k] + after[k]);
      }
    }
    const float norm = draw.norm_y;
    for (int k = 0; k < count; ++k) to[k] = to[k] * norm;
  }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WINDOWS_H_
