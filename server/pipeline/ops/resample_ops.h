// Compiles the ops that resample an image. Errors do not include the position;
// see server/pipeline/pipeline.h.

#ifndef DATASETD_SERVER_PIPELINE_OPS_RESAMPLE_OPS_H_
#define DATASETD_SERVER_PIPELINE_OPS_RESAMPLE_OPS_H_

#include "absl/status/status.h"
#include "server/dataset/geometry_spec.h"
#include "server/pipeline/ops/image_compiler.h"

namespace datasetd {

absl::Status CompileOp(const ResizeSpec& op, ImageCompiler& image);
absl::Status CompileOp(const ResizedCropSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomResizedCropSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RotateSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomRotationSpec& op, ImageCompiler& image);
absl::Status CompileOp(const AffineSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomAffineSpec& op, ImageCompiler& image);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_RESAMPLE_OPS_H_
