// The gRPC server: limits, health checks, and the gate that clients connect to.
// Thread-safe.

#ifndef DATASETD_SERVER_RPC_RPC_SERVER_H_
#define DATASETD_SERVER_RPC_RPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/attach/session_table.h"
#include "server/rpc/call_guard.h"
#include "server/rpc/request_counter.h"
#include "server/rpc/rpc_gate.h"

namespace datasetd {

class RpcServer {
 public:
  // All pointers outlive the server.
  struct Parts {
    SessionTable* sessions;
    CallGuard* guard;
    RequestCounter* requests;
    std::vector<grpc::Service*> services;
  };

  // Serves the connections that the gate is given, of which this sets
  // num_running and serve.
  //   INTERNAL  gRPC cannot start
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Parts& parts,
                                                          RpcGate::Parts gate);
  // Cancels running calls, if Shutdown has not.
  ~RpcServer();

  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Takes no more calls, cancels those that run, and waits for their end. The
  // gate lives until the destructor.
  void Shutdown();

  RpcGate* gate() const { return gate_.get(); }

 private:
  explicit RpcServer(std::unique_ptr<grpc::Server> server)
      : server_(std::move(server)) {}

  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<RpcGate> gate_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_RPC_SERVER_H_
