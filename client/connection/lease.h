// A feed's lease: the attach connection over which the ring's descriptors
// came, and whose end is the end of the feed.
//
// Thread-compatible, but for Detach, which any thread may call once.

#ifndef DATASETD_CLIENT_CONNECTION_LEASE_H_
#define DATASETD_CLIENT_CONNECTION_LEASE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection/address.h"
#include "client/connection/attach_socket.h"
#include "client/connection/call_limits.h"
#include "client/connection/guarded_fd.h"

namespace datasetd::client {

// What came with a lease.
struct AttachedDescriptors {
  GuardedFd daemon_page;
  GuardedFd client_page;
  GuardedFd event;
  GuardedFd slab;  // none where the slab is a CUDA IPC handle
};

class Lease {
 public:
  Lease() = default;

  // `token` is the session's. Errors as AttachSocket's, and what the daemon
  // refused with.
  static absl::StatusOr<Lease> Attach(const Address& address,
                                      const std::string& token,
                                      uint64_t feed_id,
                                      const CallLimits& limits,
                                      AttachedDescriptors* descriptors);

  // Once, after the slab was imported or could not be.
  absl::Status SendImportResult(const absl::Status& import) const;

  // OK while the daemon holds the lease; else why it ended: the GOODBYE, or
  // kDaemonGone. Waits up to `timeout` for the end to be told.
  absl::Status Check(absl::Duration timeout);

  // This process uses no memory of the feed any more.
  void Detach();
  // The loader is closed, the slab still used; Detach follows.
  void SendClosing() const;

 private:
  AttachSocket socket_;
  absl::Status ended_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_LEASE_H_
