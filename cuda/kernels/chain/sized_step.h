// Computes the leading steps of a ragged field for a sample of a given size:
// see SizeRule in params.h.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_SIZED_STEP_H_
#define DATASETD_CUDA_KERNELS_CHAIN_SIZED_STEP_H_

#include <cstdint>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct SampleSize {
  int32_t height, width;
};

// Returns max(wanted - extent, 0).
DATASETD_HOST_DEVICE inline int32_t LackOf(int32_t extent, int32_t wanted) {
  return extent < wanted ? wanted - extent : 0;
}

// Returns round(difference / 2) as in Python: halves to even. REQUIRES:
// difference >= 0.
DATASETD_HOST_DEVICE inline int32_t RoundedHalf(int32_t difference) {
  const int32_t floor = difference / 2;
  return difference % 2 == 0 ? floor : floor + (floor & 1);
}

// Returns the size after a Resize to a shorter edge, saturated below 2^31.
// REQUIRES: `longest` is 0 or above `edge`.
DATASETD_HOST_DEVICE inline SampleSize ShorterEdgeSize(int32_t edge,
                                                       int32_t longest,
                                                       SampleSize in) {
  const bool is_portrait = in.height >= in.width;
  const int64_t old_short = is_portrait ? in.width : in.height;
  const int64_t old_long = is_portrait ? in.height : in.width;
  int64_t new_short = edge;
  int64_t new_long = edge * old_long / old_short;
  if (longest != 0 && new_long > longest) {
    new_short = longest * new_short / new_long;
    new_long = longest;
  }
  if (new_long > INT32_MAX) new_long = INT32_MAX;
  const int32_t rows = static_cast<int32_t>(is_portrait ? new_long : new_short);
  const int32_t columns =
      static_cast<int32_t>(is_portrait ? new_short : new_long);
  return {rows, columns};
}

// Returns the output size of `step` for input size `in`. REQUIRES: no overflow,
// which the pipeline compiler checks for every size in the dataset.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE SampleSize
SizeAfter(const Step& step, SampleSize in) {
  const int32_t* const args = step.size_args;
  switch (step.size_rule) {
    case SizeRule::kKeep:
      return in;
    case SizeRule::kPad:
    case SizeRule::kPadIfNeeded: {
      const Move& move = ParamsAs<Move>(step);
      SampleSize out = {in.height + move.top + args[1],
                        in.width + move.left + args[0]};
      if (step.size_rule == SizeRule::kPadIfNeeded) {
        out.height += 2 * LackOf(out.height, args[2]);
        out.width += 2 * LackOf(out.width, args[3]);
      }
      return out;
    }
    case SizeRule::kPadForCenter:
      return {in.height + LackOf(in.height, args[0]),
              in.width + LackOf(in.width, args[1])};
    case SizeRule::kPadForWindow:
      return {
          in.height + LackOf(args[0], 0) + LackOf(in.height, args[0] + args[2]),
          in.width + LackOf(args[1], 0) + LackOf(in.width, args[1] + args[3])};
    case SizeRule::kShorterEdge:
      return ShorterEdgeSize(args[0], args[1], in);
    case SizeRule::kFixed:
    case SizeRule::kTo:
    case SizeRule::kCenter:
    case SizeRule::kWhole:
      break;
  }
  return {step.out_height, step.out_width};
}

// Copies `step` to `sized` and sets all its sizes for input size `in`.
DATASETD_HOST_DEVICE inline void SizeStepFor(const Step& step, SampleSize in,
                                             Step* sized) {
  const int32_t* const args = step.size_args;
  const SampleSize out = SizeAfter(step, in);
  *sized = step;
  sized->size_rule = SizeRule::kFixed;
  sized->in_height = in.height;
  sized->in_width = in.width;
  sized->out_height = out.height;
  sized->out_width = out.width;
  if (step.kind == StepKind::kMove) {
    Move& move = *reinterpret_cast<Move*>(sized->params);
    move.in_height = in.height;
    move.in_width = in.width;
    move.out_height = out.height;
    move.out_width = out.width;
    switch (step.size_rule) {
      case SizeRule::kPadIfNeeded:
        move.top += LackOf(in.height + move.top + args[1], args[2]);
        move.left += LackOf(in.width + move.left + args[0], args[3]);
        break;
      case SizeRule::kPadForCenter:
        move.top = LackOf(in.height, args[0]) / 2;
        move.left = LackOf(in.width, args[1]) / 2;
        break;
      case SizeRule::kPadForWindow:
        move.top = LackOf(args[0], 0);
        move.left = LackOf(args[1], 0);
        break;
      case SizeRule::kCenter:
        move.top = RoundedHalf(in.height - out.height);
        move.left = RoundedHalf(in.width - out.width);
        break;
      default:
        break;
    }
  } else if (step.size_rule == SizeRule::kWhole ||
             step.size_rule == SizeRule::kShorterEdge) {
    ResizeParams& params = *reinterpret_cast<ResizeParams*>(sized->params);
    params.height = in.height;
    params.width = in.width;
  }
}

// Copies step `s` of a ragged field to `sized`, for input size `in`. REQUIRES:
// s < field.num_sized_steps.
DATASETD_HOST_DEVICE inline void SizeStep(const FieldProgram& field, int s,
                                          SampleSize in, Step* sized) {
  DATASETD_NO_UNROLL
  for (int i = 0; i < s; ++i) in = SizeAfter(field.steps[i], in);
  SizeStepFor(field.steps[s], in, sized);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_SIZED_STEP_H_
