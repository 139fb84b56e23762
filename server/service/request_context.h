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

namespace datasetd {

class RequestContext {
 public:
  using AwaitEndsFunction = std::function<void(const Caller& caller)>;

  // Both pointers outlive the context; without `guard` streams have no time
  // limits. `await_ends` blocks, for a bounded time, until everything that
  // clients closed before, and the caller's feeds that end, are released.
  explicit RequestContext(
      const SessionTable* sessions, CallGuard* guard = nullptr,
      AwaitEndsFunction await_ends = [](const Caller&) {})
      : sessions_(sessions),
        guard_(guard),
        await_ends_(std::move(await_ends)) {}

  // Returns the session whose connection the call came by.
  //   UNAUTHENTICATED  it has ended
  absl::StatusOr<Caller> Authenticate(const grpc::ServerContext& call) const {
    return sessions_->OfConnection(call.peer());
  }
  // As Authenticate; UNAVAILABLE while the daemon drains.
  absl::StatusOr<Caller> AdmitWork(const grpc::ServerContext& call) const;

  // While the result exists, the client must send the next message of its
  // stream within a time limit; otherwise the call is cancelled.
  auto ExpectMessage(const grpc::ServerContext& call) const {
    return CallGuard::ExpectMessage(guard_, call);
  }

  // Waits for what the caller closed before: ends come over other connections
  // than the requests that need what they release.
  void AwaitEnds(const Caller& caller) const { await_ends_(caller); }

  void BeginDrain() { is_draining_.store(true); }
  bool is_draining() const { return is_draining_.load(); }

 private:
  const SessionTable* const sessions_;
  CallGuard* const guard_;
  const AwaitEndsFunction await_ends_;
  std::atomic<bool> is_draining_ = false;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_REQUEST_CONTEXT_H_
