// The cost of a chain's step for one sample. Pure; thread-safe.

#ifndef DATASETD_SERVER_PIPELINE_OPS_STEP_COST_H_
#define DATASETD_SERVER_PIPELINE_OPS_STEP_COST_H_

#include <cstdint>

#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct StepCost {
  // Filter taps per output row and column of a resize.
  int32_t num_taps_y = 0;
  int32_t num_taps_x = 0;
  // See FieldProgram::operations.
  int64_t operations = 0;

  // Sets each member to the maximum of both.
  void RaiseTo(const StepCost& other);
};

// Cost of `step`, from an image of size `in` with `in_channels` to one of size
// `out` with step.out_channels. Random ops count as always applied, and windows
// as the whole image. Numbers saturate.
StepCost CostOf(const Step& step, SampleSize in, SampleSize out,
                int in_channels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_STEP_COST_H_
