// Compiles the ops that mix the samples of a batch. Errors lack the place; see
// server/core/pipeline.h.

#ifndef DATASETD_SERVER_CORE_OPS_MIX_OPS_H_
#define DATASETD_SERVER_CORE_OPS_MIX_OPS_H_

#include "absl/status/status.h"
#include "server/core/ops/image_compiler.h"
#include "server/core/transform_spec.h"

namespace datasetd {

absl::Status CompileOp(const MixUpSpec& op, ImageCompiler& image);
absl::Status CompileOp(const CutMixSpec& op, ImageCompiler& image);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_OPS_MIX_OPS_H_
