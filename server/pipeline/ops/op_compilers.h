// The compilers of the op families on images: each adds the steps of one op to
// its image. sequence_compiler.h has the ops of other fields.
//
// Errors are INVALID_ARGUMENT without the position; see
// server/pipeline/pipeline.h. REQUIRES: CheckTransform is OK, and the op is of
// the family.

#ifndef DATASETD_SERVER_PIPELINE_OPS_OP_COMPILERS_H_
#define DATASETD_SERVER_PIPELINE_OPS_OP_COMPILERS_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/kernels/ops/warp.h"
#include "server/pipeline/ops/image_compiler.h"
#include "server/pipeline/ops/transform.h"

namespace datasetd {

// Ops that resample or move pixels.
absl::Status CompileGeometryOp(const v1::Transform& op, ImageCompiler& image);
// Those of them that move whole pixels.
absl::Status CompileMoveOp(const v1::Transform& op, ImageCompiler& image);
absl::Status CompileColourOp(const v1::Transform& op, ImageCompiler& image);
absl::Status CompileEraseOp(const v1::Transform& op, ImageCompiler& image);
absl::Status CompileDtypeOp(const v1::Transform& op, ImageCompiler& image);
absl::Status CompileBatchOp(const v1::Transform& op, ImageCompiler& image);
absl::Status CompilePolicyOp(const v1::Transform& op, ImageCompiler& image);

// The error of a family's compiler for an op that it does not know.
absl::Status NoCompiler(const v1::Transform& op);

// Pads the image with zeros so that the window at (top, left) lies inside it,
// and shifts top and left accordingly.
absl::Status PadToWindow(int64_t* top, int64_t* left, int64_t height,
                         int64_t width, ImageCompiler& image);

// The longest side of an image that a warp reads or writes: float32 has halves
// of pixels up to there.
inline constexpr int64_t kMaxWarpedSide = 1 << 22;

// Sets how an op with an interpolation and a fill samples, for an output of
// this size. Masks are sampled nearest.
template <typename Op>
absl::Status SetWarp(const Op& op, int64_t height, int64_t width,
                     const ImageCompiler& image, WarpParams* params) {
  const int64_t side = std::max({height, width, image.height(), image.width()});
  if (side > kMaxWarpedSide) {
    return Invalid(absl::StrCat("the image has a side of ", side,
                                " pixels; the op is for up to ", kMaxWarpedSide,
                                ": make it smaller before it"));
  }
  params->is_bilinear =
      op.interpolation() == v1::INTERPOLATION_MODE_BILINEAR && !image.is_mask();
  params->has_fill = !op.fill().empty();
  params->out_middle[0] = 0.5f * static_cast<float>(width) - 0.5f;
  params->out_middle[1] = 0.5f * static_cast<float>(height) - 0.5f;
  if (!params->has_fill) return absl::OkStatus();
  return image.PerChannel("fill", op.fill(), params->fill);
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_OP_COMPILERS_H_
