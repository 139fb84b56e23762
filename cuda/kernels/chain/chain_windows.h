// Neighbourhood ops on the host as classes, for WindowLanes.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WINDOWS_H_
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WINDOWS_H_

#include <cstdint>

#include "cuda/kernels/ops/adjust_sharpness.h"
#include "cuda/kernels/ops/gaussian_blur.h"

namespace datasetd {

// Apply() computes one pixel of a plane. ApplyRun() computes `count` pixels of
// a row from x on, none within Margin() of its ends, with the same bits.

struct SharpnessWindow {
  AdjustSharpnessDraw draw;

  static int Margin() { return 1; }
  float Apply(const float* plane, int height, int width, int y, int x) const {
    return ApplyAdjustSharpness(draw, plane, height, width, y, x);
  }
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

namespace chain_windows_internal {

// Blurs `count` pixels from `at` on. Those at distance i on either side are at
// before(i) and after(i).
template <typename Before, typename After>
inline void BlurRun(const float* weights, int radius, float norm,
                    const float* at, const Before& before, const After& after,
                    int count, float* to) {
  for (int k = 0; k < count; ++k) to[k] = at[k];
  for (int i = 1; i <= radius; ++i) {
    const float weight = weights[i - 1];
    const float* const low = before(i);
    const float* const high = after(i);
    for (int k = 0; k < count; ++k) to[k] += weight * (low[k] + high[k]);
  }
  for (int k = 0; k < count; ++k) to[k] = to[k] * norm;
}

}  // namespace chain_windows_internal

struct BlurWindowX {
  GaussianBlurDraw draw;

  int Margin() const { return draw.radius_x; }
  float Apply(const float* plane, int /*height*/, int width, int y,
              int x) const {
    const float* const row = plane + int64_t{y} * width;
    float blurred;
    chain_windows_internal::BlurRun(
        draw.weights, draw.radius_x, draw.norm_x, row + x,
        [&](int i) { return row + MirroredBefore(x - i); },
        [&](int i) { return row + MirroredAfter(x + i, width); }, 1, &blurred);
    return blurred;
  }
  void ApplyRun(const float* plane, int /*height*/, int width, int y, int x,
                int count, float* to) const {
    const float* const at = plane + int64_t{y} * width + x;
    chain_windows_internal::BlurRun(
        draw.weights, draw.radius_x, draw.norm_x, at,
        [&](int i) { return at - i; }, [&](int i) { return at + i; }, count,
        to);
  }
};

struct BlurWindowY {
  GaussianBlurDraw draw;

  static int Margin() { return 0; }
  float Apply(const float* plane, int height, int width, int y, int x) const {
    float blurred;
    ApplyRun(plane, height, width, y, x, 1, &blurred);
    return blurred;
  }
  void ApplyRun(const float* plane, int height, int width, int y, int x,
                int count, float* to) const {
    const auto row = [&](int at) { return plane + int64_t{at} * width + x; };
    chain_windows_internal::BlurRun(
        draw.weights, draw.radius_y, draw.norm_y, row(y),
        [&](int i) { return row(MirroredBefore(y - i)); },
        [&](int i) { return row(MirroredAfter(y + i, height)); }, count, to);
  }
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_WINDOWS_H_
