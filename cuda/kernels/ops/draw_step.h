// Draws the steps of a sample.

#ifndef DATASETD_CUDA_KERNELS_OPS_DRAW_STEP_H_
#define DATASETD_CUDA_KERNELS_OPS_DRAW_STEP_H_

#include <cstdint>
#include <type_traits>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/color_jitter.h"
#include "cuda/kernels/ops/draw_key.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/ops/policy.h"
#include "cuda/kernels/program/crop.h"
#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// Gate of an op or a RandomApply: true with the given probability.
DATASETD_HOST_DEVICE inline bool PassesGate(DrawKey key, uint32_t op_index,
                                            float probability) {
  if (probability >= 1.0f) return true;
  key.op_index = op_index;
  return UniformFloat(DrawWords(key, kGateDraw).word[0]) < probability;
}

// Sets what is drawn: the op's parameters where that is all, else what `draw`
// makes of them.
template <typename Draw, typename Params, typename DrawOp>
DATASETD_HOST_DEVICE inline void SetDraw(const Params& params, StepDraw* drawn,
                                         const DrawOp& draw) {
  if constexpr (std::is_same_v<Draw, Params>) {
    drawn->As<Draw>() = params;
  } else {
    drawn->As<Draw>() = draw(params);
  }
}

// Sets what a draw has beside its parameters. Returns whether it is applied.
DATASETD_HOST_DEVICE inline bool BeginDraw(const Step& step, const DrawKey& key,
                                           StepDraw* drawn) {
  drawn->kind = step.kind;
  drawn->statistic_index = 0;
  drawn->out_height = step.out_height;
  drawn->out_width = step.out_width;
  drawn->is_applied =
      PassesGate(key, step.group_op_index, step.group_probability) &&
      PassesGate(key, step.op_index, step.probability);
  return drawn->is_applied;
}

// For the steps of an image.
DATASETD_HOST_DEVICE inline void DrawStep(const Step& step, uint64_t seed,
                                          uint64_t epoch, int64_t sample,
                                          StepDraw* drawn) {
  const DrawKey key = {seed, epoch, sample, step.op_index};
  if (!BeginDraw(step, key, drawn)) return;
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
#define DATASETD_ROW(Name)                                          \
  case StepKind::k##Name:                                           \
    Choose##Name(ParamsAs<Name##Params>(step), key, step.in_height, \
                 step.in_width, drawn);                             \
    break;
      DATASETD_CHOICE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
#define DATASETD_ROW(Name)                                               \
  case StepKind::k##Name:                                                \
    SetDraw<Name##Draw>(                                                 \
        ParamsAs<Name##Params>(step), drawn, [&](const auto& params) {   \
          return Draw##Name(params, key, step.in_height, step.in_width); \
        });                                                              \
    break;
      DATASETD_PIXEL_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    default:
      break;
  }
}

// For the steps of a field of numbers. Ops are drawn within `length`.
DATASETD_HOST_DEVICE inline void DrawSequenceStep(const Step& step,
                                                  RowLength length,
                                                  uint64_t seed, uint64_t epoch,
                                                  int64_t sample,
                                                  StepDraw* drawn) {
  const DrawKey key = {seed, epoch, sample, step.op_index};
  if (!BeginDraw(step, key, drawn)) return;
  const bool is_mask = step.kind == StepKind::kTimeMasking ||
                       step.kind == StepKind::kFrequencyMasking;
  int width = is_mask ? length.frames : length.steps;
  if (width < 0) width = step.in_width;
  switch (step.kind) {
#define DATASETD_ROW(Name)                                             \
  case StepKind::k##Name:                                              \
    SetDraw<Name##Draw>(                                               \
        ParamsAs<Name##Params>(step), drawn, [&](const auto& params) { \
          return Draw##Name(params, key, step.in_height, width);       \
        });                                                            \
    break;
    DATASETD_SEQUENCE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    default:
      break;
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_DRAW_STEP_H_
