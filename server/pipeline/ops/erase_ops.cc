#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/pipeline/ops/op_compilers.h"

namespace datasetd {
namespace {

absl::Status AddErase(const v1::Erase& op, ImageCompiler& image) {
  EraseParams params = {};
  params.top = Narrow<int32_t>(op.top());
  params.left = Narrow<int32_t>(op.left());
  params.height = Narrow<int32_t>(op.height());
  params.width = Narrow<int32_t>(op.width());
  if (!op.value().empty()) {
    DATASETD_RETURN_IF_ERROR(
        image.PerChannel("value", op.value(), params.value));
  }
  return image.Add(StepKind::kErase, params);
}

absl::Status AddRandomErasing(const v1::RandomErasing& op,
                              ImageCompiler& image) {
  RandomErasingParams params = {};
  params.scale_low = static_cast<float>(op.scale().min());
  params.scale_high = static_cast<float>(op.scale().max());
  params.ratio_low = static_cast<float>(op.ratio().min());
  params.ratio_high = static_cast<float>(op.ratio().max());
  params.is_normal = op.is_value_random();
  if (op.is_value_random() && !op.value().empty()) {
    return Invalid(
        "value and is_value_random are both set: it must be one of them");
  }
  if (!op.value().empty()) {
    DATASETD_RETURN_IF_ERROR(
        image.PerChannel("value", op.value(), params.value));
  }
  return image.Add(StepKind::kRandomErasing, params, op.p());
}

absl::Status AddCutout(const v1::Cutout& op, ImageCompiler& image) {
  if (op.size() < 1 || op.size() > image.height() ||
      op.size() > image.width()) {
    return Invalid(
        absl::StrCat("size is ", op.size(), " on an image of ",
                     SizeText(image.height(), image.width()),
                     ": it must be at least 1 and fit into the image"));
  }
  CutoutParams params = {};
  params.size = Narrow<int32_t>(op.size());
  if (!op.fill().empty()) {
    DATASETD_RETURN_IF_ERROR(image.PerChannel("fill", op.fill(), params.fill));
  }
  return image.Add(StepKind::kCutout, params);
}

}  // namespace

absl::Status CompileEraseOp(const v1::Transform& op, ImageCompiler& image) {
  switch (op.op_case()) {
    case v1::Transform::kErase:
      return AddErase(op.erase(), image);
    case v1::Transform::kRandomErasing:
      return AddRandomErasing(op.random_erasing(), image);
    case v1::Transform::kCutout:
      return AddCutout(op.cutout(), image);
    default:
      return NoCompiler(op);
  }
}

}  // namespace datasetd
