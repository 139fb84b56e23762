// Enum values without their prefix in JSON for people to write:
// {"padding_mode": "reflect"} for "PADDING_MODE_REFLECT".

#ifndef DATASETD_CLIENT_CTL_SHORT_ENUMS_H_
#define DATASETD_CLIENT_CTL_SHORT_ENUMS_H_

#include <google/protobuf/descriptor.h>

#include <nlohmann/json.hpp>

namespace datasetd::ctl {

// Replaces in `json`, a message of the type `descriptor`, what names a value of
// its enum without the prefix, in any case, with - for _. Leaves the rest as it
// is, right or wrong.
void ExpandShortEnums(const google::protobuf::Descriptor& descriptor,
                      nlohmann::json* json);

}  // namespace datasetd::ctl

#endif  // DATASETD_CLIENT_CTL_SHORT_ENUMS_H_
