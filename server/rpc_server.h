// The gRPC server in front of the services: its limits, its health checks, and
// where it listens. Thread-safe.

#ifndef DATASETD_SERVER_RPC_SERVER_H_
#define DATASETD_SERVER_RPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/file_descriptor.h"
#include "server/grpc_acceptor.h"
#include "server/service/request_counter.h"

namespace datasetd {

class RpcServer {
 public:
  // Serves at the Unix socket `path`, which it makes, or from `listener`, which
  // is bound to it. `requests` and `services` outlive the server.
  //   INTERNAL  gRPC cannot listen there
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const std::string& path, std::optional<FileDescriptor> listener,
      RequestCounter* requests, const std::vector<grpc::Service*>& services);
  // Ends at once what is still served.
  ~RpcServer();

  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // To who asks for its health.
  void SetNotServing();

 private:
  explicit RpcServer(std::unique_ptr<grpc::Server> server);

  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<GrpcAcceptor> acceptor_;  // null: gRPC's own
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_SERVER_H_
