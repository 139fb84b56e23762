// Converts absl::Status to grpc::Status: same code, same text. Names of files,
// datasets and options in the text are escaped (base/utf8.h), so that they
// cannot control a terminal.

#ifndef DATASETD_SERVER_SERVICE_GRPC_STATUS_H_
#define DATASETD_SERVER_SERVICE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace datasetd {

grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_GRPC_STATUS_H_
