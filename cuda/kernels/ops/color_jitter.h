// ColorJitter: AdjustBrightness, AdjustContrast, AdjustSaturation and AdjustHue
// with uniformly drawn factors, in a uniformly drawn order. Each of them is a
// step, whose turn it is.
//
// Draw 1: words 0 to 3 give the four factors. Draw 2: word 0 selects one of the
// 24 orders of four ops; ops that are not set are then skipped.

#ifndef DATASETD_CUDA_KERNELS_OPS_COLOR_JITTER_H_
#define DATASETD_CUDA_KERNELS_OPS_COLOR_JITTER_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/adjust_brightness.h"
#include "cuda/kernels/ops/adjust_contrast.h"
#include "cuda/kernels/ops/adjust_hue.h"
#include "cuda/kernels/ops/adjust_saturation.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/op_table.h"

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
  static constexpr int kOperationsPerElement =
      AdjustHueParams::kOperationsPerElement;

  bool is_present[kNumJitterOps];
  float low[kNumJitterOps];
  float high[kNumJitterOps];
  float bound;   // 255 or 1
  int32_t turn;  // the place of the step's op in the drawn order
};

// Only the contrast needs a pass of its own, of which there is one.
inline bool MayBeginPass(const ColorJitterParams& params) {
  return params.is_present[static_cast<int>(JitterOp::kContrast)];
}
inline bool SharesPass(const ColorJitterParams& params) {
  return params.turn > 0;
}

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

// Draws the op of a turn; kIdentity if there are fewer ops.
DATASETD_HOST_DEVICE inline void ChooseColorJitter(
    const ColorJitterParams& params, const DrawKey& key, int height, int width,
    StepDraw* drawn) {
  const ColorJitterDraw jitter = DrawColorJitter(params, key, height, width);
  drawn->kind = StepKind::kIdentity;
  drawn->is_applied = params.turn < jitter.num_ops;
  if (!drawn->is_applied) return;
  const JitterOp op = jitter.order[params.turn];
  const float factor = jitter.factor[static_cast<int>(op)];
  switch (op) {
    case JitterOp::kBrightness:
      drawn->kind = StepKind::kAdjustBrightness;
      drawn->As<AdjustBrightnessDraw>() = {factor, jitter.bound};
      break;
    case JitterOp::kContrast:
      drawn->kind = StepKind::kAdjustContrast;
      drawn->As<AdjustContrastDraw>() = {factor, jitter.bound, 0.0f};
      break;
    case JitterOp::kSaturation:
      drawn->kind = StepKind::kAdjustSaturation;
      drawn->As<AdjustSaturationDraw>() = {factor, jitter.bound};
      break;
    case JitterOp::kHue:
      drawn->kind = StepKind::kAdjustHue;
      drawn->As<AdjustHueDraw>() = {factor, jitter.bound};
      break;
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_COLOR_JITTER_H_
