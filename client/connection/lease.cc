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
  DATASETD_ASSIGN_OR_RETURN(lease.socket_,
                            AttachSocket::Connect(address.socket_path, limits));
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
        "socket ", socket_.path(), " answered ATTACH_FEED with message ",
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
  if (is_answer_due_) {
    // Of a call that did not wait for it.
    (void)ReceiveAnswer({.timeout = timeout});
    return ended_;
  }
  const absl::StatusOr<AttachSocket::Packet> packet =
      socket_.Receive({.timeout = timeout});
  if (absl::IsDeadlineExceeded(packet.status())) return absl::OkStatus();
  return End(packet);
}

absl::Status Lease::SetWeights(const GuardedFd& weights,
                               const CallLimits& limits) {
  if (is_answer_due_) {
    const absl::Status before = ReceiveAnswer(limits);
    if (is_answer_due_) return before;
  }
  if (!ended_.ok()) return ended_;
  const absl::Status sent = socket_.Send(
      attach::SetWeights{MakeHeader(attach::MessageType::kSetWeights)},
      absl::MakeConstSpan(&weights, 1));
  if (!sent.ok()) {
    // A daemon that ended the lease may have told why.
    const absl::Status ended = Check(absl::ZeroDuration());
    return ended.ok() ? sent : ended;
  }
  is_answer_due_ = true;
  return ReceiveAnswer(limits);
}

absl::Status Lease::ReceiveAnswer(const CallLimits& limits) {
  const absl::StatusOr<AttachSocket::Packet> packet = socket_.Receive(limits);
  if (absl::IsDeadlineExceeded(packet.status()) ||
      absl::IsCancelled(packet.status())) {
    return packet.status();
  }
  is_answer_due_ = false;
  if (!packet.ok() || packet->type() != attach::MessageType::kWeightsAnswer) {
    return End(packet);
  }
  const auto answer = packet->As<attach::WeightsAnswer>();
  if (answer.status_code == 0) return absl::OkStatus();
  return socket_.RefusedError(answer.status_code, answer.reason);
}

absl::Status Lease::End(const absl::StatusOr<AttachSocket::Packet>& packet) {
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
