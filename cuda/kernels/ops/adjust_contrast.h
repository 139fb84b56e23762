// AdjustContrast: factor * x + (1 - factor) * mean in [0, bound], where mean is
// the mean gray of the op's input; the mean of the channel if there is one.

#ifndef DATASETD_CUDA_KERNELS_OPS_ADJUST_CONTRAST_H_
#define DATASETD_CUDA_KERNELS_OPS_ADJUST_CONTRAST_H_

#include <cstdint>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/pixel.h"

namespace datasetd {

struct AdjustContrastParams {
  static constexpr bool kIsBlend = true;
  static constexpr int kOperationsPerElement = 8;

  float factor;  // not negative
  float bound;   // 255 or 1
};

struct AdjustContrastDraw {
  float factor;
  float bound;
  float mean;  // set by FinishAdjustContrast
};

// Sum of the gray, in steps of 2^-22: the mean is at most one step too close to
// 0. Values are clamped to +-256; NaN counts as the least.
struct AdjustContrastStatistic {
  int64_t sum;
};

// Added to the sum after each block of pixels: the halves of so few terms fit
// 32 bits, which vectorise better.
struct AdjustContrastPartial {
  int64_t sum = 0;
  int32_t low = 0;
  int32_t high = 0;

  DATASETD_HOST_DEVICE void Add(int32_t term) {
    low += term & 0xFFFF;
    high += term >> 16;
  }
  DATASETD_HOST_DEVICE void Settle() {
    sum += int64_t{high} * 65536 + low;
    low = high = 0;
  }
};

namespace adjust_contrast_internal {
inline constexpr float kOne = 4194304.0f;
}  // namespace adjust_contrast_internal

template <typename Visit>
void VisitDrawn(const AdjustContrastDraw& draw, const Visit& visit) {
  visit("contrast_factor", draw.factor);
}

DATASETD_HOST_DEVICE inline AdjustContrastDraw DrawAdjustContrast(
    const AdjustContrastParams& params, const DrawKey&, int /*height*/,
    int /*width*/) {
  return {params.factor, params.bound, 0.0f};
}

DATASETD_HOST_DEVICE inline void InitAdjustContrast(
    AdjustContrastStatistic* statistic) {
  statistic->sum = 0;
}

// REQUIRES: 1 or 3 channels. Returns the term that a pixel adds to the sum.
DATASETD_HOST_DEVICE inline int32_t StatisticTerm(
    const AdjustContrastDraw& draw, int num_channels, const float* pixel) {
  const float gray = num_channels == 3 ? Luma(pixel, draw.bound) : pixel[0];
  const float above = gray > -256.0f ? gray : -256.0f;
  const float within = above < 256.0f ? above : 256.0f;
  return static_cast<int32_t>(within * adjust_contrast_internal::kOne);
}

template <typename Atomics>
DATASETD_HOST_DEVICE inline void AccumulateAdjustContrast(
    const AdjustContrastDraw& draw, int num_channels, const float* pixel,
    AdjustContrastPartial* partial, AdjustContrastStatistic* /*total*/) {
  partial->Add(StatisticTerm(draw, num_channels, pixel));
}

template <typename Atomics>
DATASETD_HOST_DEVICE inline void MergeAdjustContrast(
    const AdjustContrastPartial& partial, AdjustContrastStatistic* total) {
  Atomics::Add(&total->sum, partial.sum);
}

DATASETD_HOST_DEVICE inline void FinishAdjustContrast(
    int /*num_channels*/, int height, int width,
    AdjustContrastStatistic* statistic, AdjustContrastDraw* draw) {
  const double num_pixels =
      static_cast<double>(height) * static_cast<double>(width);
  const double one = static_cast<double>(adjust_contrast_internal::kOne);
  draw->mean = static_cast<float>(
      Quotient(static_cast<double>(statistic->sum), num_pixels * one));
}

DATASETD_HOST_DEVICE inline void ApplyAdjustContrast(
    const AdjustContrastDraw& draw, const AdjustContrastStatistic*,
    int num_channels, float* pixel) {
  for (int c = 0; c < num_channels; ++c) {
    pixel[c] = Blend(pixel[c], draw.mean, draw.factor, draw.bound);
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_ADJUST_CONTRAST_H_
