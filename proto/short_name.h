// The names of enums' values as users write them.

#ifndef DATASETD_PROTO_SHORT_NAME_H_
#define DATASETD_PROTO_SHORT_NAME_H_

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/ascii.h"

namespace datasetd {

// "nearest_exact" for INTERPOLATION_MODE_NEAREST_EXACT. REQUIRES: the first
// value of the enum is X_UNSPECIFIED.
inline std::string ShortName(
    const google::protobuf::EnumValueDescriptor& value) {
  const std::string& unset = value.type()->value(0)->name();
  return absl::AsciiStrToLower(
      value.name().substr(unset.size() - sizeof("UNSPECIFIED") + 1));
}

}  // namespace datasetd

#endif  // DATASETD_PROTO_SHORT_NAME_H_
