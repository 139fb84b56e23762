// RandAugment, TrivialAugmentWide and AutoAugment: draw an op and its
// magnitude. A pipeline's op is one or more turns, each a step whose draw is
// that of the op drawn.
//
// Ops, magnitudes, signs and policies are those of torchvision's v2, with
// magnitudes as torch.linspace has them in float32, evaluated from the nearer
// end. Negative magnitudes are as likely as positive ones.

#ifndef DATASETD_CUDA_KERNELS_OPS_POLICY_H_
#define DATASETD_CUDA_KERNELS_OPS_POLICY_H_

#include <cmath>
#include <cstdint>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/adjust_brightness.h"
#include "cuda/kernels/ops/adjust_contrast.h"
#include "cuda/kernels/ops/adjust_saturation.h"
#include "cuda/kernels/ops/adjust_sharpness.h"
#include "cuda/kernels/ops/affine.h"
#include "cuda/kernels/ops/autocontrast.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/equalize.h"
#include "cuda/kernels/ops/invert.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/ops/posterize.h"
#include "cuda/kernels/ops/solarize.h"
#include "cuda/kernels/ops/warp.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// RandAugment and TrivialAugmentWide draw from all but kInvert.
enum class PolicyOp : uint8_t {
  kIdentity = 0,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
  kInvert,
};
inline constexpr uint32_t kNumDrawnPolicyOps = 14;

enum class PolicyKind : uint8_t {
  kImagenet = 0,  // AutoAugment's
  kCifar10 = 1,
  kSvhn = 2,
  kRandAugment,
  kTrivialAugmentWide,
};

// An op of a row of an AutoAugment policy.
struct PolicyChoice {
  PolicyOp op;
  uint8_t tenths;  // the probability, times 10
  uint8_t bin;     // 0 for ops without a magnitude
};
inline constexpr uint32_t kNumPolicyRows = 25;
inline constexpr int kPolicyRowOps = 2;
inline constexpr int kNumAutoAugmentBins = 10;

// Op `turn` of a row of an AutoAugment policy.
DATASETD_HOST_DEVICE inline PolicyChoice AutoAugmentChoice(PolicyKind policy,
                                                           uint32_t row,
                                                           int turn) {
  static constexpr PolicyChoice kPolicies[3][kNumPolicyRows][kPolicyRowOps] = {
      {// imagenet
       {{PolicyOp::kPosterize, 4, 8}, {PolicyOp::kRotate, 6, 9}},
       {{PolicyOp::kSolarize, 6, 5}, {PolicyOp::kAutoContrast, 6, 0}},
       {{PolicyOp::kEqualize, 8, 0}, {PolicyOp::kEqualize, 6, 0}},
       {{PolicyOp::kPosterize, 6, 7}, {PolicyOp::kPosterize, 6, 6}},
       {{PolicyOp::kEqualize, 4, 0}, {PolicyOp::kSolarize, 2, 4}},
       {{PolicyOp::kEqualize, 4, 0}, {PolicyOp::kRotate, 8, 8}},
       {{PolicyOp::kSolarize, 6, 3}, {PolicyOp::kEqualize, 6, 0}},
       {{PolicyOp::kPosterize, 8, 5}, {PolicyOp::kEqualize, 10, 0}},
       {{PolicyOp::kRotate, 2, 3}, {PolicyOp::kSolarize, 6, 8}},
       {{PolicyOp::kEqualize, 6, 0}, {PolicyOp::kPosterize, 4, 6}},
       {{PolicyOp::kRotate, 8, 8}, {PolicyOp::kColor, 4, 0}},
       {{PolicyOp::kRotate, 4, 9}, {PolicyOp::kEqualize, 6, 0}},
       {{PolicyOp::kEqualize, 0, 0}, {PolicyOp::kEqualize, 8, 0}},
       {{PolicyOp::kInvert, 6, 0}, {PolicyOp::kEqualize, 10, 0}},
       {{PolicyOp::kColor, 6, 4}, {PolicyOp::kContrast, 10, 8}},
       {{PolicyOp::kRotate, 8, 8}, {PolicyOp::kColor, 10, 2}},
       {{PolicyOp::kColor, 8, 8}, {PolicyOp::kSolarize, 8, 7}},
       {{PolicyOp::kSharpness, 4, 7}, {PolicyOp::kInvert, 6, 0}},
       {{PolicyOp::kShearX, 6, 5}, {PolicyOp::kEqualize, 10, 0}},
       {{PolicyOp::kColor, 4, 0}, {PolicyOp::kEqualize, 6, 0}},
       {{PolicyOp::kEqualize, 4, 0}, {PolicyOp::kSolarize, 2, 4}},
       {{PolicyOp::kSolarize, 6, 5}, {PolicyOp::kAutoContrast, 6, 0}},
       {{PolicyOp::kInvert, 6, 0}, {PolicyOp::kEqualize, 10, 0}},
       {{PolicyOp::kColor, 6, 4}, {PolicyOp::kContrast, 10, 8}},
       {{PolicyOp::kEqualize, 8, 0}, {PolicyOp::kEqualize, 6, 0}}},
      {// cifar10
       {{PolicyOp::kInvert, 1, 0}, {PolicyOp::kContrast, 2, 6}},
       {{PolicyOp::kRotate, 7, 2}, {PolicyOp::kTranslateX, 3, 9}},
       {{PolicyOp::kSharpness, 8, 1}, {PolicyOp::kSharpness, 9, 3}},
       {{PolicyOp::kShearY, 5, 8}, {PolicyOp::kTranslateY, 7, 9}},
       {{PolicyOp::kAutoContrast, 5, 0}, {PolicyOp::kEqualize, 9, 0}},
       {{PolicyOp::kShearY, 2, 7}, {PolicyOp::kPosterize, 3, 7}},
       {{PolicyOp::kColor, 4, 3}, {PolicyOp::kBrightness, 6, 7}},
       {{PolicyOp::kSharpness, 3, 9}, {PolicyOp::kBrightness, 7, 9}},
       {{PolicyOp::kEqualize, 6, 0}, {PolicyOp::kEqualize, 5, 0}},
       {{PolicyOp::kContrast, 6, 7}, {PolicyOp::kSharpness, 6, 5}},
       {{PolicyOp::kColor, 7, 7}, {PolicyOp::kTranslateX, 5, 8}},
       {{PolicyOp::kEqualize, 3, 0}, {PolicyOp::kAutoContrast, 4, 0}},
       {{PolicyOp::kTranslateY, 4, 3}, {PolicyOp::kSharpness, 2, 6}},
       {{PolicyOp::kBrightness, 9, 6}, {PolicyOp::kColor, 2, 8}},
       {{PolicyOp::kSolarize, 5, 2}, {PolicyOp::kInvert, 0, 0}},
       {{PolicyOp::kEqualize, 2, 0}, {PolicyOp::kAutoContrast, 6, 0}},
       {{PolicyOp::kEqualize, 2, 0}, {PolicyOp::kEqualize, 6, 0}},
       {{PolicyOp::kColor, 9, 9}, {PolicyOp::kEqualize, 6, 0}},
       {{PolicyOp::kAutoContrast, 8, 0}, {PolicyOp::kSolarize, 2, 8}},
       {{PolicyOp::kBrightness, 1, 3}, {PolicyOp::kColor, 7, 0}},
       {{PolicyOp::kSolarize, 4, 5}, {PolicyOp::kAutoContrast, 9, 0}},
       {{PolicyOp::kTranslateY, 9, 9}, {PolicyOp::kTranslateY, 7, 9}},
       {{PolicyOp::kAutoContrast, 9, 0}, {PolicyOp::kSolarize, 8, 3}},
       {{PolicyOp::kEqualize, 8, 0}, {PolicyOp::kInvert, 1, 0}},
       {{PolicyOp::kTranslateY, 7, 9}, {PolicyOp::kAutoContrast, 9, 0}}},
      {// svhn
       {{PolicyOp::kShearX, 9, 4}, {PolicyOp::kInvert, 2, 0}},
       {{PolicyOp::kShearY, 9, 8}, {PolicyOp::kInvert, 7, 0}},
       {{PolicyOp::kEqualize, 6, 0}, {PolicyOp::kSolarize, 6, 6}},
       {{PolicyOp::kInvert, 9, 0}, {PolicyOp::kEqualize, 6, 0}},
       {{PolicyOp::kEqualize, 6, 0}, {PolicyOp::kRotate, 9, 3}},
       {{PolicyOp::kShearX, 9, 4}, {PolicyOp::kAutoContrast, 8, 0}},
       {{PolicyOp::kShearY, 9, 8}, {PolicyOp::kInvert, 4, 0}},
       {{PolicyOp::kShearY, 9, 5}, {PolicyOp::kSolarize, 2, 6}},
       {{PolicyOp::kInvert, 9, 0}, {PolicyOp::kAutoContrast, 8, 0}},
       {{PolicyOp::kEqualize, 6, 0}, {PolicyOp::kRotate, 9, 3}},
       {{PolicyOp::kShearX, 9, 4}, {PolicyOp::kSolarize, 3, 3}},
       {{PolicyOp::kShearY, 8, 8}, {PolicyOp::kInvert, 7, 0}},
       {{PolicyOp::kEqualize, 9, 0}, {PolicyOp::kTranslateY, 6, 6}},
       {{PolicyOp::kInvert, 9, 0}, {PolicyOp::kEqualize, 6, 0}},
       {{PolicyOp::kContrast, 3, 3}, {PolicyOp::kRotate, 8, 4}},
       {{PolicyOp::kInvert, 8, 0}, {PolicyOp::kTranslateY, 0, 2}},
       {{PolicyOp::kShearY, 7, 6}, {PolicyOp::kSolarize, 4, 8}},
       {{PolicyOp::kInvert, 6, 0}, {PolicyOp::kRotate, 8, 4}},
       {{PolicyOp::kShearY, 3, 7}, {PolicyOp::kTranslateX, 9, 3}},
       {{PolicyOp::kShearX, 1, 6}, {PolicyOp::kInvert, 6, 0}},
       {{PolicyOp::kSolarize, 7, 2}, {PolicyOp::kTranslateY, 6, 7}},
       {{PolicyOp::kShearY, 8, 4}, {PolicyOp::kInvert, 8, 0}},
       {{PolicyOp::kShearX, 7, 9}, {PolicyOp::kTranslateY, 8, 3}},
       {{PolicyOp::kShearY, 8, 5}, {PolicyOp::kAutoContrast, 7, 0}},
       {{PolicyOp::kShearX, 7, 2}, {PolicyOp::kInvert, 1, 0}}},
  };
  return kPolicies[static_cast<int>(policy)][row][turn];
}

struct PolicyParams : WarpParams {
  PolicyKind kind;
  int32_t turn;       // of the turns of the pipeline's op
  int32_t num_bins;   // at least 2
  int32_t magnitude;  // RandAugment's bin
  float bound;        // 255 or 1
};

inline const char* NameOf(const PolicyParams& params) {
  switch (params.kind) {
    case PolicyKind::kRandAugment:
      return "RandAugment";
    case PolicyKind::kTrivialAugmentWide:
      return "TrivialAugmentWide";
    default:
      return "AutoAugment";
  }
}

// Those of the largest op.
inline int64_t OperationsPerElement(const PolicyParams& params) {
  return params.is_bilinear ? 24 : 16;
}

struct PolicyDraw {
  PolicyOp op;
  bool is_applied;
  bool is_negative;  // if the op's magnitude has a sign
  int32_t bin;
};

// RandAugment, TrivialAugmentWide: draw 1 + turn: word 0 the op, word 1 the bin
// of the latter, word 2 the sign. AutoAugment: draw 1: word 0 the row; draw 2 +
// turn: word 0 whether the op is applied, word 2 the sign.
DATASETD_HOST_DEVICE inline PolicyDraw DrawPolicy(const PolicyParams& params,
                                                  const DrawKey& key) {
  PolicyDraw draw = {};
  const uint32_t turn = static_cast<uint32_t>(params.turn);
  const bool is_drawn = params.kind == PolicyKind::kRandAugment ||
                        params.kind == PolicyKind::kTrivialAugmentWide;
  const Words4 words = DrawWords(key, (is_drawn ? 1 : 2) + turn);
  draw.is_negative = UniformInt(words.word[2], 2) == 1;
  if (is_drawn) {
    draw.op =
        static_cast<PolicyOp>(UniformInt(words.word[0], kNumDrawnPolicyOps));
    draw.is_applied = true;
    draw.bin =
        params.kind == PolicyKind::kRandAugment
            ? params.magnitude
            : static_cast<int32_t>(UniformInt(
                  words.word[1], static_cast<uint32_t>(params.num_bins)));
    return draw;
  }
  const uint32_t row = UniformInt(DrawWords(key, 1).word[0], kNumPolicyRows);
  const PolicyChoice choice = AutoAugmentChoice(params.kind, row, params.turn);
  draw.op = choice.op;
  draw.is_applied =
      UniformFloat(words.word[0]) < static_cast<float>(choice.tenths) / 10.0f;
  draw.bin = choice.bin;
  return draw;
}

// Returns number `bin` of `num_bins` evenly spaced values from `first` to
// `last`.
DATASETD_HOST_DEVICE inline float SpacedValue(float first, float last, int bin,
                                              int num_bins) {
  const float step = (last - first) / static_cast<float>(num_bins - 1);
  return bin < num_bins / 2
             ? first + step * static_cast<float>(bin)
             : last - step * static_cast<float>(num_bins - 1 - bin);
}

// The magnitude, in torchvision's units: of a shear the tangent, of a
// translation pixels, of a rotation degrees counter-clockwise, of the others
// what is added to the factor 1. REQUIRES: the op is one of these.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE float SignedMagnitude(
    const PolicyParams& params, const PolicyDraw& draw, int height, int width) {
  const bool is_wide = params.kind == PolicyKind::kTrivialAugmentWide;
  // A translation's largest magnitude, as a part of the image's size.
  constexpr double kTranslation = 150.0 / 331.0;
  float last = 0.0f;
  switch (draw.op) {
    case PolicyOp::kShearX:
    case PolicyOp::kShearY:
      last = is_wide ? 0.99f : 0.3f;
      break;
    case PolicyOp::kTranslateX:
      last = is_wide ? 32.0f : static_cast<float>(kTranslation * width);
      break;
    case PolicyOp::kTranslateY:
      last = is_wide ? 32.0f : static_cast<float>(kTranslation * height);
      break;
    case PolicyOp::kRotate:
      last = is_wide ? 135.0f : 30.0f;
      break;
    default:
      last = is_wide ? 0.99f : 0.9f;
      break;
  }
  const float value = SpacedValue(0.0f, last, draw.bin, params.num_bins);
  return draw.is_negative ? -value : value;
}

// Bits that a Posterize keeps.
DATASETD_HOST_DEVICE inline int32_t PolicyBits(const PolicyParams& params,
                                               const PolicyDraw& draw) {
  const int most = params.kind == PolicyKind::kTrivialAugmentWide ? 6 : 4;
  const float bins_per_bit = static_cast<float>(Quotient(
      static_cast<double>(params.num_bins - 1), static_cast<double>(most)));
  return 8 - static_cast<int32_t>(
                 RoundHalfEven(static_cast<float>(draw.bin) / bins_per_bit));
}

// Threshold of a Solarize.
DATASETD_HOST_DEVICE inline float PolicyThreshold(const PolicyParams& params,
                                                  const PolicyDraw& draw) {
  return static_cast<float>(
      static_cast<double>(params.bound) *
      static_cast<double>(SpacedValue(1.0f, 0.0f, draw.bin, params.num_bins)));
}

// Draws the affine op of a policy's turn. Its shear stays 0: the matrix needs
// no more than the tangent.
DATASETD_HOST_DEVICE inline AffineDraw DrawPolicyWarp(
    const PolicyParams& params, const PolicyDraw& policy, int height,
    int width) {
  const float magnitude = SignedMagnitude(params, policy, height, width);
  const double value = static_cast<double>(magnitude);
  AffineDraw draw = {};
  draw.scale = 1.0f;
  double inverse[2][2] = {{1.0, 0.0}, {0.0, 1.0}};
  float center[2] = {0.0f, 0.0f};
  switch (policy.op) {
    case PolicyOp::kShearX:
    case PolicyOp::kShearY: {
      const int axis = policy.op == PolicyOp::kShearX ? 0 : 1;
      inverse[axis][1 - axis] = value;
      // The image's corner.
      center[0] = -0.5f * static_cast<float>(width);
      center[1] = -0.5f * static_cast<float>(height);
      break;
    }
    case PolicyOp::kTranslateX:
    case PolicyOp::kTranslateY:
      draw.translate[policy.op == PolicyOp::kTranslateX ? 0 : 1] =
          static_cast<float>(static_cast<int32_t>(magnitude));
      break;
    default: {
      // Counter-clockwise.
      draw.angle = -magnitude;
      const SinCos angle = SinCosPi(Quotient(value, 180.0));
      inverse[0][0] = inverse[1][1] = angle.cos;
      inverse[1][0] = angle.sin;
      inverse[0][1] = -angle.sin;
      break;
    }
  }
  SetAffineMatrix(inverse, center, height, width, &draw);
  return draw;
}

// Draws the op of a policy's turn.
DATASETD_HOST_DEVICE inline void ChoosePolicy(const PolicyParams& params,
                                              const DrawKey& key, int height,
                                              int width, StepDraw* drawn) {
  const PolicyDraw policy = DrawPolicy(params, key);
  drawn->kind = StepKind::kIdentity;
  drawn->is_applied = policy.is_applied;
  const float bound = params.bound;
  const auto factor = [&] {
    return static_cast<float>(1.0 + static_cast<double>(SignedMagnitude(
                                        params, policy, height, width)));
  };
  switch (policy.op) {
    case PolicyOp::kIdentity:
      drawn->is_applied = false;
      break;
    case PolicyOp::kShearX:
    case PolicyOp::kShearY:
    case PolicyOp::kTranslateX:
    case PolicyOp::kTranslateY:
    case PolicyOp::kRotate:
      drawn->kind = StepKind::kAffine;
      drawn->As<AffineDraw>() = DrawPolicyWarp(params, policy, height, width);
      break;
    case PolicyOp::kBrightness:
      drawn->kind = StepKind::kAdjustBrightness;
      drawn->As<AdjustBrightnessDraw>() = {factor(), bound};
      break;
    case PolicyOp::kColor:
      drawn->kind = StepKind::kAdjustSaturation;
      drawn->As<AdjustSaturationDraw>() = {factor(), bound};
      break;
    case PolicyOp::kContrast:
      drawn->kind = StepKind::kAdjustContrast;
      drawn->As<AdjustContrastDraw>() = {factor(), bound, 0.0f};
      break;
    case PolicyOp::kSharpness:
      drawn->kind = StepKind::kAdjustSharpness;
      drawn->As<AdjustSharpnessDraw>() = {factor(), bound};
      break;
    case PolicyOp::kPosterize:
      drawn->kind = StepKind::kPosterize;
      drawn->As<PosterizeDraw>() = {PolicyBits(params, policy), bound};
      break;
    case PolicyOp::kSolarize:
      drawn->kind = StepKind::kSolarize;
      drawn->As<SolarizeDraw>() = {PolicyThreshold(params, policy), bound};
      break;
    case PolicyOp::kAutoContrast:
      drawn->kind = StepKind::kAutocontrast;
      drawn->As<AutocontrastDraw>() = {bound};
      break;
    case PolicyOp::kEqualize:
      drawn->kind = StepKind::kEqualize;
      drawn->As<EqualizeDraw>() = {bound};
      break;
    case PolicyOp::kInvert:
      drawn->kind = StepKind::kInvert;
      drawn->As<InvertDraw>() = {bound};
      break;
  }
}

// Tells the shear of a policy's affine op, which is about the image's corner.
template <typename Visit>
void VisitChosen(const PolicyParams& params, const Step& step,
                 const DrawKey& key, const Visit& visit) {
  const PolicyDraw draw = DrawPolicy(params, key);
  if (draw.op != PolicyOp::kShearX && draw.op != PolicyOp::kShearY) return;
  const double degrees = std::atan(double{SignedMagnitude(
                             params, draw, step.in_height, step.in_width)}) *
                         (180.0 / M_PI);
  const bool is_x = draw.op == PolicyOp::kShearX;
  visit("shear", is_x ? degrees : 0.0, is_x ? 0.0 : degrees);
  visit("center", 0.0, 0.0);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_POLICY_H_
