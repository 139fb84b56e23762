// Table of the ops of a chain, one row per op. A row (Name) stands for
// NameParams, NameDraw, DrawName and ApplyName of its header, and for StepKind
// kName. The executor (chain_executor.h), explain (server/pipeline/explain.h)
// and the compiler are generated from it.
//
// VisitDrawn tells explain what an op drew, by the names of torchvision's
// functional form; it may take the step and its key, too. DrawsBySize tells
// whether the draw depends on the image's size; without it, it does not.
// NameParams::kOperationsPerElement is what the op costs, unless that is
// little.
//
//   point       ApplyName(draw, num_channels, pixel)
//   coordinate  ApplyName(draw, key, y, x, num_channels, pixel)
//   statistic   ApplyName(draw, statistic, num_channels, pixel), after all
//               pixels went through AccumulateName and FinishName
//   warp        NameDraw begins with the matrix that leads from (x, y, 1) to
//               the source, of two rows (affine) or three (projective). x and y
//               are relative to the output's centre; the source has pixel
//               centres at integers. NameParams is a WarpParams

#ifndef DATASETD_CUDA_KERNELS_OPS_OP_TABLE_H_
#define DATASETD_CUDA_KERNELS_OPS_OP_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/adjust_brightness.h"
#include "cuda/kernels/ops/adjust_contrast.h"
#include "cuda/kernels/ops/adjust_hue.h"
#include "cuda/kernels/ops/adjust_saturation.h"
#include "cuda/kernels/ops/adjust_sharpness.h"
#include "cuda/kernels/ops/affine.h"
#include "cuda/kernels/ops/autocontrast.h"
#include "cuda/kernels/ops/color_jitter.h"
#include "cuda/kernels/ops/cutout.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/equalize.h"
#include "cuda/kernels/ops/erase.h"
#include "cuda/kernels/ops/gaussian_blur.h"
#include "cuda/kernels/ops/gaussian_noise.h"
#include "cuda/kernels/ops/grayscale.h"
#include "cuda/kernels/ops/invert.h"
#include "cuda/kernels/ops/perspective.h"
#include "cuda/kernels/ops/policy.h"
#include "cuda/kernels/ops/posterize.h"
#include "cuda/kernels/ops/random_erasing.h"
#include "cuda/kernels/ops/resize.h"
#include "cuda/kernels/ops/solarize.h"
#include "cuda/kernels/ops/warp.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"

#define DATASETD_POINT_OPS(ROW) \
  ROW(AdjustBrightness)         \
  ROW(AdjustHue)                \
  ROW(AdjustSaturation)         \
  ROW(Grayscale)                \
  ROW(Invert)                   \
  ROW(Posterize)                \
  ROW(Solarize)

// The ops of ColorJitter and what usually follows it, which are applied so
// often that a CUDA thread has code for all its lanes.
#define DATASETD_JITTER_OPS(ROW) \
  ROW(AdjustBrightness)          \
  ROW(AdjustContrast)            \
  ROW(AdjustHue)                 \
  ROW(AdjustSaturation)          \
  ROW(Grayscale)

#define DATASETD_COORDINATE_OPS(ROW) \
  ROW(Cutout)                        \
  ROW(Erase)                         \
  ROW(GaussianNoise)                 \
  ROW(RandomErasing)

#define DATASETD_STATISTIC_OPS(ROW) \
  ROW(AdjustContrast)               \
  ROW(Autocontrast)                 \
  ROW(Equalize)

#define DATASETD_WARP_OPS(ROW) \
  ROW(Affine)                  \
  ROW(Perspective)

// Ops that the executor handles individually.
#define DATASETD_IMAGE_OPS(ROW) \
  ROW(AdjustSharpness)          \
  ROW(GaussianBlur)             \
  ROW(Resize)

#define DATASETD_OPS(ROW)      \
  DATASETD_POINT_OPS(ROW)      \
  DATASETD_COORDINATE_OPS(ROW) \
  DATASETD_STATISTIC_OPS(ROW)  \
  DATASETD_WARP_OPS(ROW)       \
  DATASETD_IMAGE_OPS(ROW)

namespace datasetd {

enum class StepKind : uint16_t {
  // No effect; makes a field without ops a chain.
  kIdentity = 0,
  kMove,         // Move; drawn: MoveDraw
  kValue,        // ValueOp; drawn: nothing
  kColorJitter,  // ColorJitterPart; drawn: the op of its turn
  kPolicy,       // PolicyParams; drawn: the op of its turn
#define DATASETD_ROW(Name) k##Name,
  DATASETD_OPS(DATASETD_ROW)
#undef DATASETD_ROW
};

// One of the kNumJitterOps turns of a ColorJitter; each is a step.
struct ColorJitterPart {
  ColorJitterParams params;
  int32_t turn;
};

struct MoveDraw {
  AxisMove axis[2];
};

inline constexpr int kMaxDrawBytes = 96;

// A step as drawn for one sample.
struct StepDraw {
  StepKind kind;
  bool is_applied;
  uint8_t statistic_index;  // of ChainState
  int32_t out_height, out_width;
  alignas(8) uint8_t draw[kMaxDrawBytes];

  template <typename Draw>
  DATASETD_HOST_DEVICE const Draw& As() const {
    static_assert(sizeof(Draw) <= kMaxDrawBytes && alignof(Draw) <= 8);
    return *reinterpret_cast<const Draw*>(draw);
  }
  template <typename Draw>
  DATASETD_HOST_DEVICE Draw& As() {
    static_assert(sizeof(Draw) <= kMaxDrawBytes && alignof(Draw) <= 8);
    return *reinterpret_cast<Draw*>(draw);
  }
};

// Stores `params` in a step; for the compiler.
template <typename Params>
void SetParams(const Params& params, Step* step) {
  static_assert(std::is_trivially_copyable_v<Params>);
  static_assert(sizeof(Params) <= kMaxStepParamsBytes && alignof(Params) <= 8);
  memcpy(step->params, &params, sizeof(params));
}

// Largest size of a statistic, in bytes.
inline constexpr int kMaxStatisticBytes = 3072;
#define DATASETD_ROW(Name)                                      \
  static_assert(sizeof(Name##Statistic) <= kMaxStatisticBytes); \
  static_assert(alignof(Name##Statistic) <= 8);
DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW

// Gate of an op or a RandomApply: true with the given probability.
DATASETD_HOST_DEVICE inline bool PassesGate(DrawKey key, uint32_t op_index,
                                            float probability) {
  if (probability >= 1.0f) return true;
  key.op_index = op_index;
  return UniformFloat(DrawWords(key, kGateDraw).word[0]) < probability;
}

// Draws the op of a ColorJitter's turn; kIdentity if there are fewer ops.
DATASETD_HOST_DEVICE inline void DrawJitterTurn(const ColorJitterPart& part,
                                                const DrawKey& key, int height,
                                                int width, StepDraw* drawn) {
  const ColorJitterDraw jitter =
      DrawColorJitter(part.params, key, height, width);
  drawn->kind = StepKind::kIdentity;
  drawn->is_applied = part.turn < jitter.num_ops;
  if (!drawn->is_applied) return;
  const JitterOp op = jitter.order[part.turn];
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
DATASETD_HOST_DEVICE inline void DrawPolicyTurn(const PolicyParams& params,
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

DATASETD_HOST_DEVICE inline void DrawStep(const Step& step, uint64_t seed,
                                          uint64_t epoch, int64_t sample,
                                          StepDraw* drawn) {
  const DrawKey key = {seed, epoch, sample, step.op_index};
  drawn->kind = step.kind;
  drawn->statistic_index = 0;
  drawn->out_height = step.out_height;
  drawn->out_width = step.out_width;
  drawn->is_applied =
      PassesGate(key, step.group_op_index, step.group_probability) &&
      PassesGate(key, step.op_index, step.probability);
  if (!drawn->is_applied) return;
  switch (step.kind) {
    case StepKind::kIdentity:
    case StepKind::kValue:
      break;
    case StepKind::kMove:
      DATASETD_NO_UNROLL
      for (int axis = 0; axis < 2; ++axis) {
        drawn->As<MoveDraw>().axis[axis] = DrawAxisMove(
            ParamsAs<Move>(step), static_cast<Axis>(axis), seed, epoch, sample);
      }
      break;
    case StepKind::kColorJitter:
      DrawJitterTurn(ParamsAs<ColorJitterPart>(step), key, step.in_height,
                     step.in_width, drawn);
      break;
    case StepKind::kPolicy:
      DrawPolicyTurn(ParamsAs<PolicyParams>(step), key, step.in_height,
                     step.in_width, drawn);
      break;
#define DATASETD_ROW(Name)                                                  \
  case StepKind::k##Name:                                                   \
    drawn->As<Name##Draw>() = Draw##Name(ParamsAs<Name##Params>(step), key, \
                                         step.in_height, step.in_width);    \
    break;
      DATASETD_OPS(DATASETD_ROW)
#undef DATASETD_ROW
  }
}

// True if the op's pixels depend on the whole image.
DATASETD_HOST_DEVICE inline bool IsStatistic(StepKind kind) {
  switch (kind) {
#define DATASETD_ROW(Name) case StepKind::k##Name:
    DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    return true;
    default:
      return false;
  }
}

// True if the op's map is projective, not affine.
template <typename WarpDraw>
inline constexpr bool kIsProjective =
    std::extent_v<decltype(WarpDraw::matrix)> == 3;

#define DATASETD_ROW(Name)                                    \
  static_assert(std::is_base_of_v<WarpParams, Name##Params>); \
  static_assert(offsetof(Name##Draw, matrix) == 0);
DATASETD_WARP_OPS(DATASETD_ROW)
#undef DATASETD_ROW

// What the draws of all warps begin with; affine maps have no third row.
struct WarpMatrix {
  float row[3][3];
};

DATASETD_HOST_DEVICE inline bool IsProjective(StepKind kind) {
  switch (kind) {
#define DATASETD_ROW(Name) \
  case StepKind::k##Name:  \
    return kIsProjective<Name##Draw>;
    DATASETD_WARP_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    default:
      return false;
  }
}

// True if an output pixel depends only on the input pixel at its position.
DATASETD_HOST_DEVICE inline bool IsPixelwise(StepKind kind) {
  switch (kind) {
    case StepKind::kIdentity:
    case StepKind::kValue:
#define DATASETD_ROW(Name) case StepKind::k##Name:
      DATASETD_POINT_OPS(DATASETD_ROW)
      DATASETD_COORDINATE_OPS(DATASETD_ROW)
      DATASETD_STATISTIC_OPS(DATASETD_ROW)
#undef DATASETD_ROW
      return true;
    default:
      return false;
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_OP_TABLE_H_
