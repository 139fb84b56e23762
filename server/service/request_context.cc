#include "server/service/request_context.h"

#include <cstdint>
#include <optional>

#include "base/status_macros.h"
#include "proto/attach_protocol.h"

namespace datasetd {

absl::StatusOr<Caller> RequestContext::Authenticate(
    const grpc::ServerContext& call) const {
  if (guard_ != nullptr) {
    DATASETD_RETURN_IF_ERROR(guard_->CheckPlace(call));
  }
  const auto& metadata = call.client_metadata();
  const auto found = metadata.find(attach::kSessionTokenMetadataKey);
  absl::string_view token;
  if (found != metadata.end()) {
    token = absl::string_view(found->second.data(), found->second.size());
  }
  DATASETD_ASSIGN_OR_RETURN(const Caller caller, sessions_->Find(token));
  if (peers_ == nullptr) return caller;
  const std::optional<uint32_t> uid = peers_->Find(call.peer());
  if (!uid.has_value()) {
    return absl::UnauthenticatedError("the connection of this call has ended");
  }
  if (*uid != caller.uid) {
    return absl::PermissionDeniedError(
        "the token belongs to a session of another user");
  }
  return caller;
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
