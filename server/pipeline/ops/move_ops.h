// Compiles the ops that move whole pixels. Errors do not include the position;
// see server/pipeline/pipeline.h.

#ifndef DATASETD_SERVER_PIPELINE_OPS_MOVE_OPS_H_
#define DATASETD_SERVER_PIPELINE_OPS_MOVE_OPS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/geometry_spec.h"
#include "server/pipeline/ops/image_compiler.h"

namespace datasetd {

absl::Status CompileOp(const PadSpec& op, ImageCompiler& image);
absl::Status CompileOp(const CropSpec& op, ImageCompiler& image);
absl::Status CompileOp(const CenterCropSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomCropSpec& op, ImageCompiler& image);
absl::Status CompileOp(const HorizontalFlipSpec& op, ImageCompiler& image);
absl::Status CompileOp(const VerticalFlipSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomHorizontalFlipSpec& op,
                       ImageCompiler& image);
absl::Status CompileOp(const RandomVerticalFlipSpec& op, ImageCompiler& image);
absl::Status CompileOp(const AlternatingFlipSpec& op, ImageCompiler& image);

// Pads the image with zeros so that the window at (top, left) lies inside it,
// and shifts top and left accordingly.
absl::Status PadToWindow(int64_t* top, int64_t* left, int64_t height,
                         int64_t width, ImageCompiler& image);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_MOVE_OPS_H_
