// The gRPC server: limits, health checks, and the gate that clients connect to.
// Thread-safe.

#ifndef DATASETD_SERVER_RPC_RPC_SERVER_H_
#define DATASETD_SERVER_RPC_RPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/file_descriptor.h"
#include "server/rpc/call_guard.h"
#include "server/rpc/peer_table.h"
#include "server/rpc/request_counter.h"
#include "server/rpc/rpc_gate.h"

namespace datasetd {

class RpcServer {
 public:
  // All pointers outlive the server.
  struct Parts {
    PeerTable* peers;
    CallGuard* guard;
    RequestCounter* requests;
    const Clock* clock;
    std::vector<grpc::Service*> services;
  };

  // Serves connections to `listener`, a non-blocking Unix stream socket.
  //   INTERNAL  gRPC cannot start
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      FileDescriptor listener, const RpcGate::Options& options,
      const Parts& parts, RpcGate::Observer observer);
  // Cancels running calls.
  ~RpcServer();

  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Makes health checks report NOT_SERVING.
  void SetNotServing();

  const RpcGate::Counters& counters() const { return gate_->counters(); }

 private:
  explicit RpcServer(std::unique_ptr<grpc::Server> server);

  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<RpcGate> gate_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_RPC_SERVER_H_
