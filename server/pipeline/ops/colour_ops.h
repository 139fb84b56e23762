// Compiles the colour and neighbourhood ops. Errors do not include the
// position; see server/pipeline/pipeline.h.

#ifndef DATASETD_SERVER_PIPELINE_OPS_COLOUR_OPS_H_
#define DATASETD_SERVER_PIPELINE_OPS_COLOUR_OPS_H_

#include "absl/status/status.h"
#include "server/dataset/colour_spec.h"
#include "server/pipeline/ops/image_compiler.h"

namespace datasetd {

absl::Status CompileOp(const ColorJitterSpec& op, ImageCompiler& image);
absl::Status CompileOp(const AdjustBrightnessSpec& op, ImageCompiler& image);
absl::Status CompileOp(const AdjustContrastSpec& op, ImageCompiler& image);
absl::Status CompileOp(const AdjustSaturationSpec& op, ImageCompiler& image);
absl::Status CompileOp(const AdjustHueSpec& op, ImageCompiler& image);
absl::Status CompileOp(const GrayscaleSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomGrayscaleSpec& op, ImageCompiler& image);
absl::Status CompileOp(const InvertSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomInvertSpec& op, ImageCompiler& image);
absl::Status CompileOp(const PosterizeSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomPosterizeSpec& op, ImageCompiler& image);
absl::Status CompileOp(const SolarizeSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomSolarizeSpec& op, ImageCompiler& image);
absl::Status CompileOp(const AdjustSharpnessSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomAdjustSharpnessSpec& op,
                       ImageCompiler& image);
absl::Status CompileOp(const AutocontrastSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomAutocontrastSpec& op, ImageCompiler& image);
absl::Status CompileOp(const EqualizeSpec& op, ImageCompiler& image);
absl::Status CompileOp(const RandomEqualizeSpec& op, ImageCompiler& image);
absl::Status CompileOp(const GaussianBlurSpec& op, ImageCompiler& image);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_COLOUR_OPS_H_
