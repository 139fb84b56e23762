// GaussianNoise: adds mean + sigma * n to every value, n standard normal. Pixel
// i takes its numbers from draw 16 + i (normal.h).

#ifndef DATASETD_CUDA_KERNELS_OPS_GAUSSIAN_NOISE_H_
#define DATASETD_CUDA_KERNELS_OPS_GAUSSIAN_NOISE_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/normal.h"
#include "cuda/kernels/ops/pixel.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct GaussianNoiseParams {
  static constexpr int kOperationsPerElement = 64;

  float mean;
  float sigma;  // not negative
  bool clip;    // to [0, 1]
};

struct GaussianNoiseDraw {
  GaussianNoiseParams params;
  int32_t image_width;
};

template <typename Visit>
void VisitDrawn(const GaussianNoiseDraw& draw, const Visit& visit) {
  visit("mean", draw.params.mean);
  visit("sigma", draw.params.sigma);
  visit("clip", draw.params.clip);
}

DATASETD_HOST_DEVICE inline GaussianNoiseDraw DrawGaussianNoise(
    const GaussianNoiseParams& params, const DrawKey&, int /*height*/,
    int width) {
  return {params, width};
}

DATASETD_HOST_DEVICE inline void ApplyGaussianNoise(
    const GaussianNoiseDraw& draw, const DrawKey& key, int y, int x,
    int num_channels, float* pixel) {
  float normal[kMaxChannels];
  DrawNormalPixel(key, y, x, draw.image_width, normal);
  for (int c = 0; c < num_channels; ++c) {
    const float noise = draw.params.mean + draw.params.sigma * normal[c];
    const float noisy = pixel[c] + noise;
    pixel[c] = draw.params.clip ? ClampToBound(noisy, 1.0f) : noisy;
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_GAUSSIAN_NOISE_H_
