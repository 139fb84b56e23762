// The methods that datasetd_call calls, by protobuf's descriptors.

#ifndef DATASETD_CLIENT_C_API_METHODS_H_
#define DATASETD_CLIENT_C_API_METHODS_H_

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace datasetd::client {

// Returns the unary methods of the daemon's services, except those that only
// Feed calls, since it keeps the state of their feed.
std::vector<const google::protobuf::MethodDescriptor*> CallableMethods();

// Returns the callable method of this name, such as "GetStatus".
// INVALID_ARGUMENT if there is none.
absl::StatusOr<const google::protobuf::MethodDescriptor*> FindMethod(
    const std::string& name);

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_C_API_METHODS_H_
