// ColorJitter: AdjustBrightness, AdjustContrast, AdjustSaturation and AdjustHue
// with uniformly drawn factors, in a uniformly drawn order.
//
// Draw 1: words 0 to 3 give the four factors. Draw 2: word 0 selects one of the
// 24 orders of four ops; ops that are not set are then skipped.

#ifndef DATASETD_CUDA_KERNELS_OPS_COLOR_JITTER_H_
#define DATASETD_CUDA_KERNELS_OPS_COLOR_JITTER_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/draw_key.h"

namespace datasetd {

enum class JitterOp : uint8_t {
  kBrightness = 0,
  kContrast = 1,
  kSaturation = 2,
  kHue = 3,
};
inline constexpr int kNumJitterOps = 4;

// Arrays are indexed by JitterOp.
struct ColorJitterParams {
  bool is_present[kNumJitterOps];
  float low[kNumJitterOps];
  float high[kNumJitterOps];
  float bound;  // 255 or 1
};

struct ColorJitterDraw {
  float factor[kNumJitterOps];  // by JitterOp
  float bound;
  int32_t num_ops;
  JitterOp order[kNumJitterOps];  // the first num_ops are run
};

DATASETD_HOST_DEVICE inline ColorJitterDraw DrawColorJitter(
    const ColorJitterParams& params, const DrawKey& key, int /*height*/,
    int /*width*/) {
  ColorJitterDraw draw = {};
  draw.bound = params.bound;
  const Words4 words = DrawWords(key, 1);
  for (int i = 0; i < kNumJitterOps; ++i) {
    draw.factor[i] =
        UniformBetween(words.word[i], params.low[i], params.high[i]);
  }
  // One of 4 ops, then one of the remaining 3, ...
  uint32_t rest = UniformInt(DrawWords(key, 2).word[0], 24);
  bool is_taken[kNumJitterOps] = {false, false, false, false};
  for (int left = kNumJitterOps; left > 0; --left) {
    int skip = static_cast<int>(rest % left);
    rest /= left;
    int op = 0;
    while (is_taken[op] || skip > 0) {
      if (!is_taken[op]) --skip;
      ++op;
    }
    is_taken[op] = true;
    if (params.is_present[op]) {
      draw.order[draw.num_ops++] = static_cast<JitterOp>(op);
    }
  }
  return draw;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_COLOR_JITTER_H_
