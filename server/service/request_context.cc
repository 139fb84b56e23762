#include "server/service/request_context.h"

#include "base/status_macros.h"

namespace datasetd {

absl::StatusOr<Caller> RequestContext::AdmitWork(
    const grpc::ServerContext& call) const {
  DATASETD_ASSIGN_OR_RETURN(const Caller caller, Authenticate(call));
  if (is_draining()) {
    return absl::UnavailableError("the daemon is shutting down");
  }
  return caller;
}

}  // namespace datasetd
