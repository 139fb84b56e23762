// Compiles the ops that mix the samples of a batch. Errors do not include the
// position; see server/pipeline/pipeline.h.

#ifndef DATASETD_SERVER_PIPELINE_OPS_MIX_OPS_H_
#define DATASETD_SERVER_PIPELINE_OPS_MIX_OPS_H_

#include "absl/status/status.h"
#include "server/dataset/transform_spec.h"
#include "server/pipeline/ops/image_compiler.h"

namespace datasetd {

absl::Status CompileOp(const MixUpSpec& op, ImageCompiler& image);
absl::Status CompileOp(const CutMixSpec& op, ImageCompiler& image);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_MIX_OPS_H_
