// Compiles the ops that erase parts of an image. Errors do not include the
// position; see server/pipeline/pipeline.h.

#ifndef DATASETD_SERVER_PIPELINE_OPS_ERASE_OPS_H_
#define DATASETD_SERVER_PIPELINE_OPS_ERASE_OPS_H_

#include "absl/status/status.h"
#include "server/dataset/colour_spec.h"
#include "server/pipeline/ops/image_compiler.h"

namespace datasetd {

absl::Status CompileOp(const EraseSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomErasingSpec& op, ImageCompiler& image);
absl::Status CompileOp(const CutoutSpec& op, ImageCompiler& image);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_ERASE_OPS_H_
