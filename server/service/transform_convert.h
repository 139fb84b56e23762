// Converts the messages of transform.proto to specs. Form is checked here,
// meaning in server/pipeline.

#ifndef DATASETD_SERVER_SERVICE_TRANSFORM_CONVERT_H_
#define DATASETD_SERVER_SERVICE_TRANSFORM_CONVERT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datasetd/v1/transform.pb.h"
#include "server/dataset/transform_spec.h"

namespace datasetd {

// Unset fields get torchvision's defaults.
//   INVALID_ARGUMENT  names the transform by `where` and its position in the
//                     list
absl::StatusOr<std::vector<TransformSpec>> TransformsFromProto(
    const google::protobuf::RepeatedPtrField<v1::Transform>& transforms,
    const std::string& where);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_TRANSFORM_CONVERT_H_
