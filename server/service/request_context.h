// Common parts of all services: authenticates the caller, refuses new work
// while the daemon drains, and waits for what clients just closed. Thread-safe.

#ifndef DATASETD_SERVER_SERVICE_REQUEST_CONTEXT_H_
#define DATASETD_SERVER_SERVICE_REQUEST_CONTEXT_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/statusor.h"
#include "server/attach/session_table.h"
#include "server/dataset/caller.h"
#include "server/rpc/call_guard.h"
#include "server/rpc/peer_table.h"

namespace datasetd {

class RequestContext {
 public:
  // All pointers outlive the context. `peers` and `guard` belong to the gRPC
  // server; without them connections are not checked. `await_ends` blocks, for
  // a bounded time, until everything that clients closed before is released.
  explicit RequestContext(
      const SessionTable* sessions, const PeerTable* peers = nullptr,
      CallGuard* guard = nullptr, std::function<void()> await_ends = [] {})
      : sessions_(sessions),
        peers_(peers),
        guard_(guard),
        await_ends_(std::move(await_ends)) {}

  //   UNAUTHENTICATED     no token, or not one of a live session
  //   PERMISSION_DENIED   the connection belongs to another user than the
  //                       session
  //   RESOURCE_EXHAUSTED  the user has too many concurrent calls
  absl::StatusOr<Caller> Authenticate(const grpc::ServerContext& call) const;
  // As Authenticate; UNAVAILABLE while the daemon drains.
  absl::StatusOr<Caller> AdmitWork(const grpc::ServerContext& call) const;

  // While the result exists, the client must send the next message of its
  // stream within a time limit; otherwise the call is cancelled.
  auto ExpectMessage(const grpc::ServerContext& call) const {
    return CallGuard::ExpectMessage(guard_, call);
  }

  // Returns what `attempt` returns, an absl::StatusOr. If `is_lack` of its
  // status, tries again when what clients closed before is released.
  template <typename IsLack, typename Attempt>
  auto TryAgainIf(const IsLack& is_lack, const Attempt& attempt) const {
    auto result = attempt();
    if (is_lack(result.status())) {
      await_ends_();
      result = attempt();
    }
    return result;
  }

  void BeginDrain() { is_draining_.store(true); }
  bool is_draining() const { return is_draining_.load(); }

 private:
  const SessionTable* const sessions_;
  const PeerTable* const peers_;
  CallGuard* const guard_;
  const std::function<void()> await_ends_;
  std::atomic<bool> is_draining_ = false;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_REQUEST_CONTEXT_H_
