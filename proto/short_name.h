// The names of enums' values as users write them.

#ifndef DATASETD_PROTO_SHORT_NAME_H_
#define DATASETD_PROTO_SHORT_NAME_H_

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/ascii.h"

namespace datasetd {

// "INTERPOLATION_MODE_", which the names of the enum's values begin with.
// REQUIRES: its first value is X_UNSPECIFIED.
inline std::string NamePrefix(const google::protobuf::EnumDescriptor& type) {
  const std::string& unset = type.value(0)->name();
  return unset.substr(0, unset.size() - sizeof("UNSPECIFIED") + 1);
}

// "nearest_exact" for INTERPOLATION_MODE_NEAREST_EXACT. REQUIRES: as
// NamePrefix.
inline std::string ShortName(
    const google::protobuf::EnumValueDescriptor& value) {
  return absl::AsciiStrToLower(
      value.name().substr(NamePrefix(*value.type()).size()));
}

}  // namespace datasetd

#endif  // DATASETD_PROTO_SHORT_NAME_H_
