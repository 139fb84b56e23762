// Lists the passes of one sample: the field's list (ChainPass), less the passes
// that the sample's draws leave out. The list is all that the executor follows.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_PASS_H_
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_PASS_H_

#include <cstdint>

#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/interpolation.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// Returns the source of a pass that begins with an op of this kind.
DATASETD_HOST_DEVICE inline PassSource SourceOf(StepKind kind) {
  switch (kind) {
    case StepKind::kResize:
      return PassSource::kResize;
#define DATASETD_ROW(Name) case StepKind::k##Name:
      DATASETD_WARP_OPS(DATASETD_ROW)
#undef DATASETD_ROW
      return PassSource::kWarp;
    case StepKind::kAdjustSharpness:
      return PassSource::kSharpness;
    case StepKind::kGaussianBlur:
      return PassSource::kBlurX;
    default:
      return PassSource::kMoves;
  }
}

namespace chain_pass_internal {

// True if the step makes new values of several others: later value ops are then
// folded. A resize to the window's own size does not.
DATASETD_HOST_DEVICE inline bool IsBlend(const Step& step,
                                         const StepDraw& drawn) {
  if (drawn.kind == StepKind::kResize) {
    const InterpolationMode mode = ParamsAs<ResizeParams>(step).interpolation;
    const ResizeDraw& window = drawn.As<ResizeDraw>();
    return mode != InterpolationMode::kNearest &&
           mode != InterpolationMode::kNearestExact &&
           (window.height != drawn.out_height ||
            window.width != drawn.out_width);
  }
  switch (drawn.kind) {
#define DATASETD_ROW(Name) \
  case StepKind::k##Name:  \
    return kBlends<Name##Params>;
    DATASETD_POINT_OPS(DATASETD_ROW)
    DATASETD_COORDINATE_OPS(DATASETD_ROW)
    DATASETD_STATISTIC_OPS(DATASETD_ROW)
    DATASETD_IMAGE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
#define DATASETD_ROW(Name) case StepKind::k##Name:
    DATASETD_WARP_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    return ParamsAs<WarpParams>(step).is_bilinear;
    default:
      return false;
  }
}

// Adds the applied step `s` to a pass.
DATASETD_HOST_DEVICE inline void AddStep(const Step& step,
                                         const StepDraw& drawn, int s,
                                         DrawnPass* pass) {
  const auto at = static_cast<uint8_t>(s);
  const auto end = static_cast<uint8_t>(s + 1);
  if (IsPixelwise(drawn.kind)) {
    if (pass->end_op == 0) pass->first_op = pass->folded_op = at;
    pass->end_op = end;
    if (drawn.kind != StepKind::kValue) pass->folded_op = end;
    pass->channels = step.out_channels;
    return;
  }
  if (drawn.kind == StepKind::kMove) {
    if (pass->end_move == 0) pass->first_move = at;
    pass->end_move = end;
    const Move& move = ParamsAs<Move>(step);
    pass->has_fill =
        pass->has_fill || (move.kind == MoveKind::kPad &&
                           move.padding_mode == PaddingMode::kConstant);
  }
  pass->height = drawn.out_height;
  pass->width = drawn.out_width;
}

}  // namespace chain_pass_internal

// Lists the passes of the sample whose steps are drawn in `state`, an image of
// height x width. One rank calls it. `warps_bytes`: a warp can read a resident
// image of three channels of bytes, so that it needs no pass before it.
DATASETD_HOST_DEVICE inline void DrawPasses(const FieldProgram& field,
                                            int32_t height, int32_t width,
                                            bool warps_bytes,
                                            ChainState* state) {
  const bool is_rgb_bytes =
      field.in_dtype == Dtype::kUint8 && field.channels == 3;
  uint32_t applied = 0;
  DATASETD_NO_UNROLL
  for (int s = 0; s < field.num_steps; ++s) {
    if (state->drawn[s].is_applied) applied |= uint32_t{1} << s;
  }
  int num_passes = 0;
  int num_statistics = 0;
  bool is_blended = false;
  int first_step = 0;  // of the last pass
  DrawnPass pass = {};
  pass.height = height;
  pass.width = width;
  pass.channels = field.channels;
  pass.statistic_step = kNoStep;
  DATASETD_NO_UNROLL
  for (int p = 0; p < field.num_passes; ++p) {
    const ChainPass& planned = field.passes[p];
    const int first = planned.first_step;
    if ((applied >> first & 1) != 0) {
      StepDraw& drawn = state->drawn[first];
      const bool is_statistic = IsStatistic(drawn.kind);
      const PassSource source =
          planned.is_drawn ? SourceOf(drawn.kind) : planned.source;
      uint32_t after = planned.after;
      if (num_passes == 0 && warps_bytes && is_rgb_bytes &&
          source == PassSource::kWarp) {
        after = (uint32_t{1} << first) - 1;
      }
      if ((applied & after) >> first_step != 0 &&
          (!planned.is_drawn || is_statistic || source != PassSource::kMoves)) {
        if (is_statistic) {
          drawn.statistic_index =
              static_cast<uint8_t>(num_statistics++ % kNumStatistics);
          pass.statistic_step = planned.first_step;
        }
        if (!is_blended) pass.folded_op = pass.end_op;
        pass.max_elements = field.scratch.image_elements[num_passes % 2];
        state->passes[num_passes++] = pass;
        pass.source = PassSource::kMoves;
        pass.has_fill = false;
        pass.end_move = pass.end_op = pass.folded_op = 0;
        pass.statistic_step = kNoStep;
        first_step = first;
      }
      if (source != PassSource::kMoves) {
        pass.source = source;
        pass.source_step = planned.first_step;
      }
    }
    DATASETD_NO_UNROLL
    for (int s = first; s < planned.end_step; ++s) {
      if ((applied >> s & 1) == 0) continue;
      const Step& step = field.steps[s];
      const StepDraw& drawn = state->drawn[s];
      chain_pass_internal::AddStep(step, drawn, s, &pass);
      is_blended = is_blended || chain_pass_internal::IsBlend(step, drawn);
    }
  }
  if (!is_blended) pass.folded_op = pass.end_op;
  state->passes[num_passes++] = pass;
  state->num_passes = num_passes;
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_PASS_H_
