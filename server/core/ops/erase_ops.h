// Compiles the ops that overwrite parts of an image. Errors lack the place; see
// server/core/pipeline.h.

#ifndef DATASETD_SERVER_CORE_OPS_ERASE_OPS_H_
#define DATASETD_SERVER_CORE_OPS_ERASE_OPS_H_

#include "absl/status/status.h"
#include "server/core/colour_spec.h"
#include "server/core/ops/image_compiler.h"

namespace datasetd {

absl::Status CompileOp(const EraseSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomErasingSpec& op, ImageCompiler& image);
absl::Status CompileOp(const CutoutSpec& op, ImageCompiler& image);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_OPS_ERASE_OPS_H_
