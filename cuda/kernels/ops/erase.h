// Erase: sets a box of the image to a value per channel. Exact.

#ifndef DATASETD_CUDA_KERNELS_OPS_ERASE_H_
#define DATASETD_CUDA_KERNELS_OPS_ERASE_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct EraseParams {
  // Rows top .. top + height and columns left .. left + width, as far as they
  // are inside the image.
  int32_t top, left;
  int32_t height, width;
  float value[kMaxChannels];
};
using EraseDraw = EraseParams;

// A height of 0 means that nothing is erased.
template <typename Visit>
void VisitBox(const EraseDraw& draw, const Visit& visit) {
  visit("top", draw.top);
  visit("left", draw.left);
  visit("height", draw.height);
  visit("width", draw.width);
}

// Also for Cutout.
template <typename Visit>
void VisitDrawn(const EraseDraw& draw, const Step& step, const DrawKey&,
                const Visit& visit) {
  VisitBox(draw, visit);
  visit.List("value", draw.value, step.out_channels);
}

DATASETD_HOST_DEVICE inline bool IsErased(const EraseDraw& draw, int y, int x) {
  // Coordinates before the box wrap to values above its size.
  const uint32_t row =
      static_cast<uint32_t>(y) - static_cast<uint32_t>(draw.top);
  const uint32_t column =
      static_cast<uint32_t>(x) - static_cast<uint32_t>(draw.left);
  return row < static_cast<uint32_t>(draw.height) &&
         column < static_cast<uint32_t>(draw.width);
}

DATASETD_HOST_DEVICE inline void ApplyErase(const EraseDraw& draw,
                                            const DrawKey&, int y, int x,
                                            int num_channels, float* pixel) {
  if (!IsErased(draw, y, x)) return;
  for (int c = 0; c < num_channels; ++c) pixel[c] = draw.value[c];
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_ERASE_H_
