// Adapts ops to masks, whose pixel values are class ids.

#ifndef DATASETD_SERVER_PIPELINE_MASK_TRANSFORM_H_
#define DATASETD_SERVER_PIPELINE_MASK_TRANSFORM_H_

#include "absl/status/statusor.h"
#include "server/dataset/transform_spec.h"

namespace datasetd {

// Returns the op with nearest interpolation (nearest-exact is kept) and without
// antialias, also inside RandomApply.
//   INVALID_ARGUMENT  a colour, erasing or batch op; the message lacks the
//                     position
absl::StatusOr<TransformSpec> ForMask(const TransformSpec& transform);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_MASK_TRANSFORM_H_
