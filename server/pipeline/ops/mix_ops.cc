#include "server/pipeline/ops/mix_ops.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// A sample has fewer than 2^30 elements.
constexpr int64_t kMaxClasses = (int64_t{1} << 30) - 1;

absl::Status CheckMix(double alpha, int64_t num_classes) {
  if (!(alpha > 0.0) || !std::isfinite(alpha)) {
    return Invalid(
        absl::StrCat("alpha is ", alpha, ": it must be above 0, and finite"));
  }
  if (num_classes < 2 || num_classes > kMaxClasses) {
    return Invalid(absl::StrCat("num_classes is ", num_classes,
                                ": it must be within 2..", kMaxClasses));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CompileOp(const MixUpSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(CheckMix(op.alpha, op.num_classes));
  return image.SetMix(MixKind::kMixUp, op.alpha, op.per_sample);
}

absl::Status CompileOp(const CutMixSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(CheckMix(op.alpha, op.num_classes));
  return image.SetMix(MixKind::kCutMix, op.alpha, op.per_sample);
}

}  // namespace datasetd
