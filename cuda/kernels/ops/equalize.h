// Equalize and RandomEqualize: flattens each channel's histogram by a table of
// 256 values. Channels for which no table exists are unchanged.
//
// Exact for uint8 images; values that are not integers are rounded first.
// Floating point images are converted through 8 bits, as in torchvision:
// floor(255.999 x) in, k / 255 out, even without a table.

#ifndef DATASETD_CUDA_KERNELS_OPS_EQUALIZE_H_
#define DATASETD_CUDA_KERNELS_OPS_EQUALIZE_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"

namespace datasetd {

struct EqualizeParams {
  static constexpr int kOperationsPerElement = 8;

  float bound;  // 255 or 1
};
using EqualizeDraw = EqualizeParams;

// Histograms, which FinishEqualize converts to tables: the bits of new values.
struct EqualizeStatistic {
  uint32_t bins[3][256];
};
struct EqualizePartial {};

namespace equalize_internal {

DATASETD_HOST_DEVICE inline int BinOf(float x, float bound) {
  if (bound == 255.0f) return FloatToUint8(x);
  const float scaled = x * 255.999f;
  const float positive = scaled > 0.0f ? scaled : 0.0f;
  return static_cast<int>(positive < 255.0f ? positive : 255.0f);
}

}  // namespace equalize_internal

DATASETD_HOST_DEVICE inline void InitEqualize(EqualizeStatistic* statistic) {
  DATASETD_NO_UNROLL
  for (int c = 0; c < 3; ++c) {
    DATASETD_NO_UNROLL
    for (int i = 0; i < 256; ++i) statistic->bins[c][i] = 0;
  }
}

// REQUIRES: 1 or 3 channels; below 2^31 pixels.
template <typename Atomics>
DATASETD_HOST_DEVICE inline void AccumulateEqualize(
    const EqualizeDraw& draw, int num_channels, const float* pixel,
    EqualizePartial* /*partial*/, EqualizeStatistic* total) {
  for (int c = 0; c < num_channels; ++c) {
    Atomics::Add(
        &total->bins[c][equalize_internal::BinOf(pixel[c], draw.bound)],
        uint32_t{1});
  }
}

template <typename Atomics>
DATASETD_HOST_DEVICE inline void MergeEqualize(const EqualizePartial&,
                                               EqualizeStatistic* /*total*/) {}

DATASETD_HOST_DEVICE inline void FinishEqualize(int num_channels,
                                                int /*height*/, int /*width*/,
                                                EqualizeStatistic* statistic,
                                                EqualizeDraw* draw) {
  DATASETD_NO_UNROLL
  for (int c = 0; c < num_channels; ++c) {
    uint32_t* bins = statistic->bins[c];
    uint32_t num_pixels = 0;
    uint32_t last = 0;
    DATASETD_NO_UNROLL
    for (int i = 0; i < 256; ++i) {
      num_pixels += bins[i];
      if (bins[i] != 0) last = bins[i];
    }
    const uint32_t step = (num_pixels - last) / 255;
    uint32_t below = 0;
    DATASETD_NO_UNROLL
    for (int i = 0; i < 256; ++i) {
      const uint32_t count = bins[i];
      const uint32_t level =
          step == 0 ? static_cast<uint32_t>(i) : (below + step / 2) / step;
      const float value = static_cast<float>(level < 255 ? level : 255);
      bins[i] = FloatBits(draw->bound == 255.0f ? value : value / 255.0f);
      below += count;
    }
  }
}

// REQUIRES: FinishEqualize has processed the statistic.
DATASETD_HOST_DEVICE inline void ApplyEqualize(
    const EqualizeDraw& draw, const EqualizeStatistic* statistic,
    int num_channels, float* pixel) {
  for (int c = 0; c < num_channels; ++c) {
    const int bin = equalize_internal::BinOf(pixel[c], draw.bound);
    pixel[c] = FloatFromBits(statistic->bins[c][bin]);
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_EQUALIZE_H_
