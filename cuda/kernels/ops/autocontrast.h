// Autocontrast and RandomAutocontrast: stretches each channel from its [min,
// max] to [0, bound]. Constant channels are unchanged.
//
// Exact: uint8 images are truncated in float32, as in v1 of torchvision.

#ifndef DATASETD_CUDA_KERNELS_OPS_AUTOCONTRAST_H_
#define DATASETD_CUDA_KERNELS_OPS_AUTOCONTRAST_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"
#include "cuda/kernels/ops/atomics.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/pixel.h"

namespace datasetd {

struct AutocontrastParams {
  static constexpr int kOperationsPerElement = 8;

  float bound;  // 255 or 1
};

struct AutocontrastDraw {
  float bound;
  float minimum[3];  // set by FinishAutocontrast
  float scale[3];
};

// Extremes as keys ordered like the floats (KeyOfFloat). NaN is ignored.
struct AutocontrastStatistic {
  uint32_t min_key[3];
  uint32_t max_key[3];
};
using AutocontrastPartial = AutocontrastStatistic;

namespace autocontrast_internal {

DATASETD_HOST_DEVICE inline uint32_t KeyOfFloat(float x) {
  const uint32_t bits = FloatBits(x);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}

DATASETD_HOST_DEVICE inline float FloatOfKey(uint32_t key) {
  return FloatFromBits(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}

}  // namespace autocontrast_internal

DATASETD_HOST_DEVICE inline AutocontrastDraw DrawAutocontrast(
    const AutocontrastParams& params, const DrawKey&, int /*height*/,
    int /*width*/) {
  return {params.bound, {0.0f, 0.0f, 0.0f}, {1.0f, 1.0f, 1.0f}};
}

DATASETD_HOST_DEVICE inline void InitAutocontrast(
    AutocontrastStatistic* statistic) {
  for (int c = 0; c < 3; ++c) {
    statistic->min_key[c] = 0xFFFFFFFFu;
    statistic->max_key[c] = 0;
  }
}

// REQUIRES: 1 or 3 channels.
template <typename Atomics>
DATASETD_HOST_DEVICE inline void AccumulateAutocontrast(
    const AutocontrastDraw&, int num_channels, const float* pixel,
    AutocontrastPartial* partial, AutocontrastStatistic* /*total*/) {
  for (int c = 0; c < num_channels; ++c) {
    if (pixel[c] != pixel[c]) continue;
    const uint32_t key = autocontrast_internal::KeyOfFloat(pixel[c]);
    PlainAtomics::Min(&partial->min_key[c], key);
    PlainAtomics::Max(&partial->max_key[c], key);
  }
}

template <typename Atomics>
DATASETD_HOST_DEVICE inline void MergeAutocontrast(
    const AutocontrastPartial& partial, AutocontrastStatistic* total) {
  for (int c = 0; c < 3; ++c) {
    Atomics::Min(&total->min_key[c], partial.min_key[c]);
    Atomics::Max(&total->max_key[c], partial.max_key[c]);
  }
}

DATASETD_HOST_DEVICE inline void FinishAutocontrast(
    int num_channels, int /*height*/, int /*width*/,
    AutocontrastStatistic* statistic, AutocontrastDraw* draw) {
  DATASETD_NO_UNROLL
  for (int c = 0; c < num_channels; ++c) {
    draw->minimum[c] = 0.0f;
    draw->scale[c] = 1.0f;
    if (statistic->min_key[c] > statistic->max_key[c]) continue;
    const float minimum =
        autocontrast_internal::FloatOfKey(statistic->min_key[c]);
    const float maximum =
        autocontrast_internal::FloatOfKey(statistic->max_key[c]);
    // Rounded twice, as when torch divides a number by a tensor.
    const float scale = 1.0f / (maximum - minimum) * draw->bound;
    // Skip infinite and NaN scales.
    if (scale - scale != 0.0f) continue;
    draw->minimum[c] = minimum;
    draw->scale[c] = scale;
  }
}

DATASETD_HOST_DEVICE inline void ApplyAutocontrast(const AutocontrastDraw& draw,
                                                   const AutocontrastStatistic*,
                                                   int num_channels,
                                                   float* pixel) {
  for (int c = 0; c < num_channels; ++c) {
    const float stretched =
        ClampToBound((pixel[c] - draw.minimum[c]) * draw.scale[c], draw.bound);
    if (draw.bound == 255.0f) {
      pixel[c] = static_cast<float>(
          static_cast<int32_t>(stretched > 0.0f ? stretched : 0.0f));
    } else {
      pixel[c] = stretched;
    }
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_AUTOCONTRAST_H_
