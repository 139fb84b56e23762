#include "client/connection/lease.h"

#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/connection/error_detail.h"

namespace datasetd::client {

absl::StatusOr<Lease> Lease::Attach(const Address& address,
                                    const std::string& token, uint64_t feed_id,
                                    absl::Span<const GuardedFd> arrays,
                                    const CallLimits& limits,
                                    AttachedDescriptors* descriptors) {
  Lease lease;
  DATASETD_ASSIGN_OR_RETURN(
      lease.socket_, AttachSocket::Connect(address.attach_socket_path, limits));
  attach::AttachFeed request = {};
  request.header = MakeHeader(attach::MessageType::kAttachFeed);
  memcpy(request.token, token.data(),
         std::min<size_t>(token.size(), attach::kTokenBytes));
  request.feed_id = feed_id;
  absl::Status status = lease.socket_.Send(request, arrays);
  if (status.ok()) status = lease.Receive(limits, descriptors);
  if (!status.ok()) {
    // The daemon may have the lease already. Nothing is mapped.
    lease.Detach();
    return status;
  }
  return lease;
}

absl::Status Lease::Receive(const CallLimits& limits,
                            AttachedDescriptors* descriptors) {
  DATASETD_ASSIGN_OR_RETURN(AttachSocket::Packet packet,
                            socket_.Receive(limits));
  if (packet.type() != attach::MessageType::kAttached ||
      packet.As<attach::Attached>().num_descriptors != packet.num_descriptors ||
      packet.num_descriptors < attach::kSlabFd) {
    return absl::InternalError(absl::StrCat(
        "attach socket ", socket_.path(), " answered ATTACH_FEED with message ",
        static_cast<uint32_t>(packet.type()), " and ", packet.num_descriptors,
        " descriptors; 3 or 4 are due"));
  }
  descriptors->daemon_page =
      std::move(packet.descriptors[attach::kDaemonPageFd]);
  descriptors->client_page =
      std::move(packet.descriptors[attach::kClientPageFd]);
  descriptors->event = std::move(packet.descriptors[attach::kEventFd]);
  descriptors->slab = std::move(packet.descriptors[attach::kSlabFd]);
  return absl::OkStatus();
}

absl::Status Lease::SendImportResult(const absl::Status& import) const {
  attach::ImportResult result = {};
  result.header = MakeHeader(attach::MessageType::kImportResult);
  result.is_ok = import.ok() ? 1 : 0;
  const std::string reason(import.message());
  memcpy(result.reason, reason.data(),
         std::min(reason.size(), sizeof(result.reason) - 1));
  return socket_.Send(result);
}

absl::Status Lease::Check(absl::Duration timeout) {
  if (!ended_.ok()) return ended_;
  if (timeout <= absl::ZeroDuration() && !socket_.HasInput()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<AttachSocket::Packet> packet =
      socket_.Receive({.timeout = timeout});
  if (absl::IsDeadlineExceeded(packet.status())) return absl::OkStatus();
  ended_ = packet.ok() ? absl::InternalError(absl::StrCat(
                             "the daemon at ", socket_.path(), " sent message ",
                             static_cast<uint32_t>(packet->type()),
                             " on a lease; only GOODBYE is due"))
                       : packet.status();
  return ended_;
}

void Lease::SendClosing() const {
  if (!socket_.is_open()) return;
  // A daemon that is gone need not be told.
  (void)socket_.Send(
      attach::Closing{MakeHeader(attach::MessageType::kClosing)});
}

void Lease::Detach() {
  if (!socket_.is_open()) return;
  // A daemon that is gone need not be told.
  (void)socket_.Send(
      attach::Detached{MakeHeader(attach::MessageType::kDetached)});
  socket_.Close();
}

}  // namespace datasetd::client
