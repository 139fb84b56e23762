// What a step of a chain costs for one sample. Pure; thread-safe.

#ifndef DATASETD_SERVER_PIPELINE_OPS_STEP_COST_H_
#define DATASETD_SERVER_PIPELINE_OPS_STEP_COST_H_

#include <cstdint>

#include "cuda/kernels/chain/sized_step.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct StepCost {
  // Of each output row and column of a resize.
  int32_t num_taps_y = 0;
  int32_t num_taps_x = 0;
  // As FieldProgram::operations.
  int64_t operations = 0;

  // Takes what is larger in `other`.
  void RaiseTo(const StepCost& other);
};

// Of `step`, which makes an image of size `out` and step.out_channels of one of
// size `in` and `in_channels`. Random ops count as if they were always applied,
// and windows as the whole image. Numbers are held at the largest.
StepCost CostOf(const Step& step, SampleSize in, SampleSize out,
                int in_channels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_STEP_COST_H_
