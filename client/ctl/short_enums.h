// Accepts enum values without their prefix in JSON: {"padding_mode": "reflect"}
// for "PADDING_MODE_REFLECT".

#ifndef DATASETD_CLIENT_CTL_SHORT_ENUMS_H_
#define DATASETD_CLIENT_CTL_SHORT_ENUMS_H_

#include <google/protobuf/descriptor.h>

#include <nlohmann/json.hpp>

namespace datasetd::ctl {

// Replaces short names of enum values in `json`, a message of the type
// `descriptor`, by the full names. Short names ignore case and may use - for _.
// Leaves everything else unchanged, valid or not.
void ExpandShortEnums(const google::protobuf::Descriptor& descriptor,
                      nlohmann::json* json);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_SHORT_ENUMS_H_
