#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/pipeline/ops/op_compilers.h"

namespace datasetd {
namespace {

absl::Status AddToDtype(const v1::ToDtype& op, ImageCompiler& image) {
  const Dtype dtype = ToDtypeOf(op);
  if (dtype == image.dtype()) return absl::OkStatus();
  if (dtype == Dtype::kUint8) {
    return Invalid(absl::StrCat(
        "from ", DtypeName(image.dtype()),
        " back to uint8 is not supported: leave out this op, and the ops "
        "to a floating point type before it"));
  }
  if (!IsKernelFloat(dtype)) {
    return Invalid(absl::StrCat(
        "an image cannot become ", DtypeName(dtype),
        ": it can be uint8 from the start, float16, bfloat16 or float32"));
  }
  if (image.dtype() == Dtype::kUint8 && op.scale()) {
    ValueOp value_op = {};
    value_op.kind = ValueOpKind::kDivide;
    value_op.divisor = 255.0f;
    DATASETD_RETURN_IF_ERROR(image.AddValueOp(value_op));
  }
  image.set_dtype(dtype);
  return absl::OkStatus();
}

absl::Status AddNormalize(const v1::Normalize& op, ImageCompiler& image) {
  if (!IsFloatingPoint(image.dtype())) {
    return Invalid(
        "Normalize needs a floating point image: put ToDtype(float32, "
        "scale=True) before it");
  }
  ValueOp value_op = {};
  value_op.kind = ValueOpKind::kNormalize;
  DATASETD_RETURN_IF_ERROR(image.PerChannel("mean", op.mean(), value_op.mean));
  DATASETD_RETURN_IF_ERROR(image.PerChannel("std", op.std(), value_op.std));
  for (int c = 0; c < image.channels(); ++c) {
    if (value_op.std[c] == 0.0f) {
      return Invalid(absl::StrCat("std is 0 in channel ", c,
                                  ": it must not be, as float32 either"));
    }
  }
  return image.AddValueOp(value_op);
}

}  // namespace

absl::Status CompileDtypeOp(const v1::Transform& op, ImageCompiler& image) {
  switch (op.op_case()) {
    case v1::Transform::kToDtype:
      return AddToDtype(op.to_dtype(), image);
    case v1::Transform::kNormalize:
      return AddNormalize(op.normalize(), image);
    default:
      return NoCompiler(op);
  }
}

}  // namespace datasetd
