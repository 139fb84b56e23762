#include "server/pipeline/ops/number_ops.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {

absl::Status CompileOp(const ToDtypeSpec& op, ImageCompiler& image) {
  if (DtypeSizeBytes(op.dtype) == 0) {
    return Invalid("the dtype is not set: use float16, bfloat16 or float32");
  }
  if (op.dtype == image.dtype()) return absl::OkStatus();
  if (op.dtype == Dtype::kUint8) {
    return Invalid(absl::StrCat(
        "from ", DtypeName(image.dtype()),
        " back to uint8 is not supported: leave out this op, and the ops "
        "to a floating point type before it"));
  }
  if (!IsKernelFloat(op.dtype)) {
    return Invalid(absl::StrCat(
        "an image cannot become ", DtypeName(op.dtype),
        ": it can be uint8 from the start, float16, bfloat16 or float32"));
  }
  if (image.dtype() == Dtype::kUint8 && op.scale) {
    ValueOp value_op = {};
    value_op.kind = ValueOpKind::kDivide;
    value_op.divisor = 255.0f;
    DATASETD_RETURN_IF_ERROR(image.AddValueOp(value_op));
  }
  image.set_dtype(op.dtype);
  return absl::OkStatus();
}

absl::Status CompileOp(const NormalizeSpec& op, ImageCompiler& image) {
  if (!IsFloatingPoint(image.dtype())) {
    return Invalid(
        "Normalize needs a floating point image: put ToDtype(float32, "
        "scale=True) before it");
  }
  ValueOp value_op = {};
  value_op.kind = ValueOpKind::kNormalize;
  DATASETD_RETURN_IF_ERROR(image.PerChannel("mean", op.mean, value_op.mean));
  DATASETD_RETURN_IF_ERROR(image.PerChannel("std", op.std, value_op.std));
  for (int c = 0; c < image.channels(); ++c) {
    if (value_op.std[c] == 0.0f) {
      return Invalid(absl::StrCat("std is 0 in channel ", c,
                                  ": it must not be, as float32 either"));
    }
  }
  return image.AddValueOp(value_op);
}

}  // namespace datasetd
