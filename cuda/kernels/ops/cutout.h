// Cutout: sets a square at a uniformly drawn position inside the image to a
// value per channel. Draw 1: word 0 gives the top, word 1 the left.

#ifndef DATASETD_CUDA_KERNELS_OPS_CUTOUT_H_
#define DATASETD_CUDA_KERNELS_OPS_CUTOUT_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/erase.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct CutoutParams {
  int32_t size;
  float fill[kMaxChannels];
};
using CutoutDraw = EraseDraw;

inline bool DrawsBySize(const CutoutParams&) { return true; }

// REQUIRES: size is at most height and width.
DATASETD_HOST_DEVICE inline CutoutDraw DrawCutout(const CutoutParams& params,
                                                  const DrawKey& key,
                                                  int height, int width) {
  const Words4 words = DrawWords(key, 1);
  CutoutDraw draw = {};
  draw.top = static_cast<int32_t>(UniformInt(
      words.word[0], static_cast<uint32_t>(height - params.size + 1)));
  draw.left = static_cast<int32_t>(UniformInt(
      words.word[1], static_cast<uint32_t>(width - params.size + 1)));
  draw.height = params.size;
  draw.width = params.size;
  for (int c = 0; c < kMaxChannels; ++c) draw.value[c] = params.fill[c];
  return draw;
}

DATASETD_HOST_DEVICE inline void ApplyCutout(const CutoutDraw& draw,
                                             const DrawKey& key, int y, int x,
                                             int num_channels, float* pixel) {
  ApplyErase(draw, key, y, x, num_channels, pixel);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_CUTOUT_H_
