// From the messages of transform.proto to their specs. The form is
// checked here, the meaning in core.

#ifndef DATASETD_SERVER_SERVICE_TRANSFORM_CONVERT_H_
#define DATASETD_SERVER_SERVICE_TRANSFORM_CONVERT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasetd/v1/transform.pb.h"
#include "server/dataset/transform_spec.h"

namespace datasetd {

// What a message leaves unset gets torchvision's default.
//   INVALID_ARGUMENT  names the transform by `where` and its place in the list
absl::StatusOr<std::vector<TransformSpec>> TransformsFromProto(
    const google::protobuf::RepeatedPtrField<v1::Transform>& transforms,
    const std::string& where);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_TRANSFORM_CONVERT_H_
