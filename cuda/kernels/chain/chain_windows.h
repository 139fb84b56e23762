// Neighbourhood ops as classes, for WindowLanes.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WINDOWS_H_
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WINDOWS_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/adjust_sharpness.h"
#include "cuda/kernels/ops/gaussian_blur.h"

namespace datasetd {

// Apply() computes one pixel of kChannels planes, `stride` elements apart.
// ApplyRun() computes `count` pixels of a row from x on, none within Margin()
// of its ends, with the same bits. Draw is a value for teams with lanes, whose
// stores cannot alias it then, else a reference.

template <typename Draw>
struct SharpnessWindow {
  Draw draw;

  template <int kChannels>
  DATASETD_HOST_DEVICE void Apply(const float* plane, int64_t stride,
                                  int height, int width, int y, int x,
                                  float (&to)[kChannels]) const {
    DATASETD_UNROLL
    for (int c = 0; c < kChannels; ++c) {
      to[c] =
          ApplyAdjustSharpness(draw, plane + c * stride, height, width, y, x);
    }
  }
  static int Margin() { return 1; }
  void ApplyRun(const float* plane, int height, int width, int y, int x,
                int count, float* to) const {
    if (y == 0 || y >= height - 1) {
      for (int k = 0; k < count; ++k) {
        to[k] = ApplyAdjustSharpness(draw, plane, height, width, y, x + k);
      }
      return;
    }
    const float* const at = plane + int64_t{y} * width + x;
    for (int k = 0; k < count; ++k) {
      to[k] = SharpnessInside(draw, at + k, width);
    }
  }
};

template <typename Draw>
struct BlurWindowX {
  Draw draw;

  template <int kChannels>
  DATASETD_HOST_DEVICE void Apply(const float* plane, int64_t stride,
                                  int height, int width, int y, int x,
                                  float (&to)[kChannels]) const {
    ApplyGaussianBlurX(draw, plane, stride, height, width, y, x, to);
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

template <typename Draw>
struct BlurWindowY {
  Draw draw;

  template <int kChannels>
  DATASETD_HOST_DEVICE void Apply(const float* plane, int64_t stride,
                                  int height, int width, int y, int x,
                                  float (&to)[kChannels]) const {
    ApplyGaussianBlurY(draw, plane, stride, height, width, y, x, to);
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
