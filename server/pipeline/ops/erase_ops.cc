#include "server/pipeline/ops/erase_ops.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"

namespace datasetd {

absl::Status CompileOp(const EraseSpec& op, ImageCompiler& image) {
  const std::pair<const char*, int64_t> parts[] = {{"top", op.top},
                                                   {"left", op.left},
                                                   {"height", op.height},
                                                   {"width", op.width}};
  for (const auto& [name, value] : parts) {
    DATASETD_RETURN_IF_ERROR(
        ImageCompiler::CheckRange(name, static_cast<double>(value), 0.0,
                                  static_cast<double>(kMaxElements)));
  }
  EraseParams params = {};
  params.top = Narrow<int32_t>(op.top);
  params.left = Narrow<int32_t>(op.left);
  params.height = Narrow<int32_t>(op.height);
  params.width = Narrow<int32_t>(op.width);
  if (!op.value.empty()) {
    DATASETD_RETURN_IF_ERROR(image.PerChannel("value", op.value, params.value));
  }
  return image.Add(StepKind::kErase, params);
}

absl::Status CompileOp(const RandomErasingSpec& op, ImageCompiler& image) {
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckInterval("scale", op.scale, 0.0, 1.0));
  DATASETD_RETURN_IF_ERROR(
      ImageCompiler::CheckInterval("ratio", op.ratio, 1e-6, 1e6));
  RandomErasingParams params = {};
  params.scale_low = static_cast<float>(op.scale.min);
  params.scale_high = static_cast<float>(op.scale.max);
  params.ratio_low = static_cast<float>(op.ratio.min);
  params.ratio_high = static_cast<float>(op.ratio.max);
  params.is_normal = op.is_value_random;
  if (op.is_value_random && image.is_mask()) {
    return Invalid("value is random, and the field is a mask: give it a value");
  }
  if (op.is_value_random && !op.value.empty()) {
    return Invalid("value is both random and given: choose one");
  }
  if (!op.value.empty()) {
    DATASETD_RETURN_IF_ERROR(image.PerChannel("value", op.value, params.value));
  }
  return image.Add(StepKind::kRandomErasing, params, op.p);
}

absl::Status CompileOp(const CutoutSpec& op, ImageCompiler& image) {
  if (op.size < 1 || op.size > image.height() || op.size > image.width()) {
    return Invalid(
        absl::StrCat("size is ", op.size, " on an image of ",
                     SizeText(image.height(), image.width()),
                     ": it must be at least 1 and fit into the image"));
  }
  CutoutParams params = {};
  params.size = Narrow<int32_t>(op.size);
  if (!op.fill.empty()) {
    DATASETD_RETURN_IF_ERROR(image.PerChannel("fill", op.fill, params.fill));
  }
  return image.Add(StepKind::kCutout, params);
}

}  // namespace datasetd
