// absl::Status as grpc::Status: the same codes, the same text. What names of
// files, datasets and options brought into the text cannot drive a terminal
// that it is printed to: it is escaped as base/utf8.h says.

#ifndef DATASETD_SERVER_SERVICE_GRPC_STATUS_H_
#define DATASETD_SERVER_SERVICE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace datasetd {

grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_GRPC_STATUS_H_
