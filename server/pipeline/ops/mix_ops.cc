#include "absl/strings/str_cat.h"
#include "server/pipeline/ops/op_compilers.h"

namespace datasetd {

absl::Status NoCompiler(const v1::Transform& op) {
  return absl::InternalError(
      absl::StrCat(TransformName(op), " has no compiler in its family"));
}

absl::Status CompileBatchOp(const v1::Transform& op, ImageCompiler& image) {
  switch (op.op_case()) {
    case v1::Transform::kMixUp:
      return image.SetMix(MixKind::kMixUp, op.mix_up().alpha(),
                          op.mix_up().per_sample());
    case v1::Transform::kCutMix:
      return image.SetMix(MixKind::kCutMix, op.cut_mix().alpha(),
                          op.cut_mix().per_sample());
    default:
      return NoCompiler(op);
  }
}

}  // namespace datasetd
