#include "server/service/request_context.h"

#include "cuda/status_macros.h"
#include "proto/attach_protocol.h"

namespace datasetd {

absl::StatusOr<Caller> RequestContext::Authenticate(
    const grpc::ServerContext& call) const {
  const auto& metadata = call.client_metadata();
  const auto found = metadata.find(attach::kSessionTokenMetadataKey);
  absl::string_view token;
  if (found != metadata.end()) {
    token = absl::string_view(found->second.data(), found->second.size());
  }
  return sessions_->Find(token);
}

absl::StatusOr<Caller> RequestContext::AdmitWork(
    const grpc::ServerContext& call) const {
  DATASETD_ASSIGN_OR_RETURN(const Caller caller, Authenticate(call));
  if (is_draining()) {
    return absl::UnavailableError("the daemon is shutting down");
  }
  return caller;
}

}  // namespace datasetd
