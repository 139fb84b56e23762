#include "server/pipeline/mask_transform.h"

#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {

absl::StatusOr<TransformSpec> ForMask(const TransformSpec& transform) {
  switch (TransformFamily(transform)) {
    case OpFamily::kGeometry:
    case OpFamily::kNumber:
    case OpFamily::kGroup:
      break;
    case OpFamily::kColour:
    case OpFamily::kErase:
    case OpFamily::kBatch:
      return absl::InvalidArgumentError(absl::StrCat(
          TransformName(transform),
          " is for images, and the field is a mask, whose values are classes: "
          "a mask takes geometry, ToDtype and Normalize"));
  }
  TransformSpec result = transform;
  if (auto* group = std::get_if<RandomApplySpec>(&result.op)) {
    for (TransformSpec& inner : group->transforms) {
      DATASETD_ASSIGN_OR_RETURN(inner, ForMask(inner));
    }
  }
  std::visit(
      [](auto& op) {
        if constexpr (requires { op.interpolation; }) {
          if (op.interpolation != InterpolationMode::kNearestExact) {
            op.interpolation = InterpolationMode::kNearest;
          }
        }
        if constexpr (requires { op.antialias; }) op.antialias = false;
      },
      result.op);
  return result;
}

}  // namespace datasetd
