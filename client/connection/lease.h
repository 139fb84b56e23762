// A feed's lease: the attach connection that delivers the ring's descriptors.
// When it ends, the feed ends.
//
// Thread-compatible, except that any thread may call Detach once.

#ifndef DATASETD_CLIENT_CONNECTION_LEASE_H_
#define DATASETD_CLIENT_CONNECTION_LEASE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/connection/address.h"
#include "client/connection/attach_socket.h"
#include "client/connection/call_limits.h"
#include "client/connection/guarded_fd.h"

namespace datasetd::client {

// Descriptors received with a lease.
struct AttachedDescriptors {
  GuardedFd daemon_page;
  GuardedFd client_page;
  GuardedFd event;
  GuardedFd slab;  // none if the slab is a CUDA IPC handle
};

class Lease {
 public:
  Lease() = default;

  // `token` is the session's; `arrays` are those of the feed's options, in the
  // order of proto/attach_protocol.h. Errors as AttachSocket, and the daemon's
  // refusal.
  static absl::StatusOr<Lease> Attach(const Address& address,
                                      const std::string& token,
                                      uint64_t feed_id,
                                      absl::Span<const GuardedFd> arrays,
                                      const CallLimits& limits,
                                      AttachedDescriptors* descriptors);

  // Call once, after importing the slab has succeeded or failed.
  absl::Status SendImportResult(const absl::Status& import) const;

  // Returns OK while the daemon holds the lease, else why it ended: the
  // GOODBYE, or kDaemonGone. Blocks up to `timeout` for a message of the
  // daemon.
  absl::Status Check(absl::Duration timeout);

  // Sends other weights to the feed, which has them from the next seek on.
  // After DEADLINE_EXCEEDED and CANCELLED that is not known; the next call
  // waits for the answer first. Errors as Check, AttachSocket, and the daemon's
  // refusal, after which the feed has those before.
  absl::Status SetWeights(const GuardedFd& weights, const CallLimits& limits);

  // Tells the daemon that this process no longer uses the feed's memory.
  void Detach();
  // Tells the daemon that the loader is closed but the slab is still in use.
  // Detach follows.
  void SendClosing() const;

 private:
  absl::Status Receive(const CallLimits& limits,
                       AttachedDescriptors* descriptors);
  // Returns the answer to SetWeights. REQUIRES: it is due.
  absl::Status ReceiveAnswer(const CallLimits& limits);
  // Why the lease has ended: a packet that is not due, or an error of Receive.
  absl::Status End(const absl::StatusOr<AttachSocket::Packet>& packet);

  AttachSocket socket_;
  absl::Status ended_;
  bool is_answer_due_ = false;  // to SetWeights
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_LEASE_H_
