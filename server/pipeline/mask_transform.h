// What an op means for a mask, whose values are classes.

#ifndef DATASETD_SERVER_PIPELINE_MASK_TRANSFORM_H_
#define DATASETD_SERVER_PIPELINE_MASK_TRANSFORM_H_

#include "absl/status/statusor.h"
#include "server/dataset/transform_spec.h"

namespace datasetd {

// The op with interpolation nearest, but nearest-exact stays, and without
// antialias; in a RandomApply, too.
//   INVALID_ARGUMENT  a colour, erasing or batch op; the message lacks the
//   place
absl::StatusOr<TransformSpec> ForMask(const TransformSpec& transform);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_MASK_TRANSFORM_H_
