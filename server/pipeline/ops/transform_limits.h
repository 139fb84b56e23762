// Limits on one field's transforms per sample, from the configuration's
// transform_limits.

#ifndef DATASETD_SERVER_PIPELINE_OPS_TRANSFORM_LIMITS_H_
#define DATASETD_SERVER_PIPELINE_OPS_TRANSFORM_LIMITS_H_

#include <cstdint>

#include "cuda/kernels/program/params.h"

namespace datasetd {

struct TransformLimits {
  // Image side before, between and after ops; at most kMaxExtent.
  int64_t max_side = kMaxExtent;
  // Memory between ops: TeamScratchBytes.
  int64_t max_scratch_bytes = int64_t{1} << 30;
  // See FieldProgram::operations.
  int64_t max_operations = int64_t{1} << 34;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_TRANSFORM_LIMITS_H_
