#include "server/pipeline/ops/step_cost.h"

#include <algorithm>

#include "base/checked_math.h"
#include "cuda/kernels/math/axis_taps.h"
#include "cuda/kernels/ops/color_jitter.h"
#include "cuda/kernels/ops/op_table.h"
#include "cuda/kernels/ops/policy.h"

namespace datasetd {
namespace {

// A tap's weight is computed twice: for the sum, and to be divided by it.
constexpr int64_t kOperationsPerTap = 16;

StepCost CostOfResize(const Step& step, SampleSize in, SampleSize out,
                      int channels) {
  const ResizeParams& params = ParamsAs<ResizeParams>(step);
  StepCost cost;
  cost.num_taps_y =
      NumTaps({in.height, out.height, params.interpolation, params.antialias});
  cost.num_taps_x =
      NumTaps({in.width, out.width, params.interpolation, params.antialias});
  // Uses the order of passes that ChainResizer chooses for the whole image. A
  // window may have fewer rows than the output where the image does not.
  const int64_t columns_first =
      SaturatingProduct(out.height, in.width, channels, cost.num_taps_y);
  const int64_t along =
      SaturatingProduct(out.height, out.width, channels, cost.num_taps_x);
  const int64_t rows_first =
      SaturatingProduct(in.height, out.width, channels, cost.num_taps_x);
  const int64_t down =
      SaturatingProduct(out.height, out.width, channels, cost.num_taps_y);
  const int64_t passes = params.is_random || in.height <= out.height
                             ? std::max(SaturatingSum(columns_first, along),
                                        SaturatingSum(rows_first, down))
                             : SaturatingSum(columns_first, along);
  const int64_t num_taps =
      SaturatingSum(SaturatingMultiply(out.height, cost.num_taps_y),
                    SaturatingMultiply(out.width, cost.num_taps_x));
  cost.operations =
      SaturatingSum(passes, SaturatingProduct(in.height, in.width, channels),
                    SaturatingMultiply(num_taps, kOperationsPerTap));
  return cost;
}

// Of ops whose header says none.
constexpr int64_t kDefaultOperations = 4;

template <typename Params>
int64_t OperationsOf(const Step& step) {
  if constexpr (requires(const Params& params) {
                  OperationsPerElement(params);
                }) {
    return OperationsPerElement(ParamsAs<Params>(step));
  } else if constexpr (requires { Params::kOperationsPerElement; }) {
    return Params::kOperationsPerElement;
  } else {
    return kDefaultOperations;
  }
}

template <typename Draw>
int64_t OperationsOfWarp(const Step& step) {
  return (ParamsAs<WarpParams>(step).is_bilinear ? 24 : 8) +
         (kIsProjective<Draw> ? 8 : 0);
}

// Operations per output element.
int64_t OperationsOfStep(const Step& step) {
  switch (step.kind) {
#define DATASETD_ROW(Name) \
  case StepKind::k##Name:  \
    return OperationsOfWarp<Name##Draw>(step);
    DATASETD_WARP_OPS(DATASETD_ROW)
#undef DATASETD_ROW
#define DATASETD_ROW(Name) \
  case StepKind::k##Name:  \
    return OperationsOf<Name##Params>(step);
    DATASETD_POINT_OPS(DATASETD_ROW)
    DATASETD_COORDINATE_OPS(DATASETD_ROW)
    DATASETD_STATISTIC_OPS(DATASETD_ROW)
    DATASETD_IMAGE_OPS(DATASETD_ROW)
    DATASETD_CHOICE_OPS(DATASETD_ROW)
#undef DATASETD_ROW
    default:
      return kDefaultOperations;
  }
}

}  // namespace

void StepCost::RaiseTo(const StepCost& other) {
  num_taps_y = std::max(num_taps_y, other.num_taps_y);
  num_taps_x = std::max(num_taps_x, other.num_taps_x);
  operations = std::max(operations, other.operations);
}

StepCost CostOf(const Step& step, SampleSize in, SampleSize out,
                int in_channels) {
  if (step.kind == StepKind::kResize) {
    return CostOfResize(step, in, out, in_channels);
  }
  StepCost cost;
  cost.operations = SaturatingProduct(out.height, out.width,
                                      std::max(in_channels, step.out_channels),
                                      OperationsOfStep(step));
  return cost;
}

}  // namespace datasetd
