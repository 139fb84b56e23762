// Compiles the ops on dtype and scale. Errors do not include the position; see
// server/pipeline/pipeline.h.

#ifndef DATASETD_SERVER_PIPELINE_OPS_NUMBER_OPS_H_
#define DATASETD_SERVER_PIPELINE_OPS_NUMBER_OPS_H_

#include "absl/status/status.h"
#include "base/dtype.h"
#include "server/dataset/transform_spec.h"
#include "server/pipeline/ops/image_compiler.h"

namespace datasetd {

// True for the floating-point types that kernels write.
inline bool IsKernelFloat(Dtype dtype) {
  return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16 ||
         dtype == Dtype::kFloat32;
}

absl::Status CompileOp(const ToDtypeSpec& op, ImageCompiler& image);
absl::Status CompileOp(const NormalizeSpec& op, ImageCompiler& image);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_NUMBER_OPS_H_
