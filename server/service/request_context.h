// What every service needs to answer a call: who calls, and whether the daemon
// still takes work. Thread-safe.

#ifndef DATASETD_SERVER_SERVICE_REQUEST_CONTEXT_H_
#define DATASETD_SERVER_SERVICE_REQUEST_CONTEXT_H_

#include <grpcpp/server_context.h>

#include <atomic>

#include "absl/status/statusor.h"
#include "server/attach/session_table.h"
#include "server/core/caller.h"

namespace datasetd {

class RequestContext {
 public:
  explicit RequestContext(const SessionTable* sessions) : sessions_(sessions) {}

  //   UNAUTHENTICATED  no token, or not that of a live session
  absl::StatusOr<Caller> Authenticate(const grpc::ServerContext& call) const;
  // As Authenticate; UNAVAILABLE while the daemon drains.
  absl::StatusOr<Caller> AdmitWork(const grpc::ServerContext& call) const;

  void BeginDrain() { is_draining_.store(true); }
  bool is_draining() const { return is_draining_.load(); }

 private:
  const SessionTable* const sessions_;
  std::atomic<bool> is_draining_ = false;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SERVICE_REQUEST_CONTEXT_H_
