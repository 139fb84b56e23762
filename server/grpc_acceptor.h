// Accepts connections of a listening socket that gRPC did not make, and hands
// them to a gRPC server: Debian's gRPC cannot take a listening socket.
//
// One thread. Out of descriptors, connections wait in the socket's queue.

#ifndef DATASETD_SERVER_GRPC_ACCEPTOR_H_
#define DATASETD_SERVER_GRPC_ACCEPTOR_H_

#include <grpcpp/server.h>

#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "cuda/file_descriptor.h"

namespace datasetd {

class GrpcAcceptor {
 public:
  // `listener` is a Unix stream socket and does not block. `server` has started
  // and outlives the acceptor.
  static absl::StatusOr<std::unique_ptr<GrpcAcceptor>> Start(
      FileDescriptor listener, grpc::Server* server);

  // Accepts no more; what was accepted is the server's.
  ~GrpcAcceptor();

 private:
  GrpcAcceptor(FileDescriptor listener, FileDescriptor stop,
               grpc::Server* server);
  void Run();

  const FileDescriptor listener_;
  const FileDescriptor stop_;  // eventfd
  grpc::Server* const server_;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_GRPC_ACCEPTOR_H_
