// GaussianBlur: Gaussian window along x, then along y, with reflect padding.
// Sigma is drawn uniformly: draw 1, word 0.
//
// torchvision rounds uint8 images after the blur; if this is the last op, the
// result is rounded in the same way.

#ifndef DATASETD_CUDA_KERNELS_OPS_GAUSSIAN_BLUR_H_
#define DATASETD_CUDA_KERNELS_OPS_GAUSSIAN_BLUR_H_

#include <cstdint>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

inline constexpr int kMaxBlurRadius = 21;

struct GaussianBlurParams {
  static constexpr bool kIsBlend = true;

  int32_t radius_x;  // (kernel_size - 1) / 2, at most kMaxBlurRadius
  int32_t radius_y;
  float sigma_low;  // positive
  float sigma_high;
};

inline int64_t OperationsPerElement(const GaussianBlurParams& params) {
  return 8 + 4 * (int64_t{params.radius_x} + params.radius_y);
}

struct GaussianBlurDraw {
  int16_t radius_x;
  int16_t radius_y;
  // 1 / sum of the window.
  float norm_x;
  float norm_y;
  // Weights at distance 1, 2, ...; the centre has weight 1.
  float weights[kMaxBlurRadius];
};
static_assert(sizeof(GaussianBlurDraw) <= 96);

// Returns the drawn sigma, from which the weights below are computed.
DATASETD_HOST_DEVICE inline float DrawGaussianBlurSigma(
    const GaussianBlurParams& params, const DrawKey& key) {
  return UniformBetween(DrawWords(key, 1).word[0], params.sigma_low,
                        params.sigma_high);
}

template <typename Visit>
void VisitDrawn(const GaussianBlurDraw& draw, const Step& step,
                const DrawKey& key, const Visit& visit) {
  visit("kernel_size", 2 * draw.radius_x + 1, 2 * draw.radius_y + 1);
  visit("sigma",
        DrawGaussianBlurSigma(ParamsAs<GaussianBlurParams>(step), key));
}

DATASETD_HOST_DEVICE inline GaussianBlurDraw DrawGaussianBlur(
    const GaussianBlurParams& params, const DrawKey& key, int /*height*/,
    int /*width*/) {
  const double sigma = static_cast<double>(DrawGaussianBlurSigma(params, key));
  GaussianBlurDraw draw = {};
  draw.radius_x = static_cast<int16_t>(params.radius_x);
  draw.radius_y = static_cast<int16_t>(params.radius_y);
  double sum_x = 1.0;
  double sum_y = 1.0;
  DATASETD_NO_UNROLL
  for (int k = 1; k <= kMaxBlurRadius; ++k) {
    const double distance = Quotient(static_cast<double>(k), sigma);
    const double weight = Exp(-0.5 * (distance * distance));
    draw.weights[k - 1] = static_cast<float>(weight);
    if (k <= params.radius_x) sum_x += 2.0 * weight;
    if (k <= params.radius_y) sum_y += 2.0 * weight;
  }
  draw.norm_x = static_cast<float>(Quotient(1.0, sum_x));
  draw.norm_y = static_cast<float>(Quotient(1.0, sum_y));
  return draw;
}

// Mirrors coordinates beyond an edge at the edge pixel.
DATASETD_HOST_DEVICE inline int MirroredBefore(int at) {
  return at < 0 ? -at : at;
}
DATASETD_HOST_DEVICE inline int MirroredAfter(int at, int size) {
  return at < size ? at : 2 * (size - 1) - at;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_GAUSSIAN_BLUR_H_
