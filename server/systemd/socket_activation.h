// Sockets that a service manager made and passes on: sd_listen_fds(3).
//
// They arrive as descriptors 3 and on, announced in $LISTEN_FDS and
// $LISTEN_PID. The daemon takes both of its sockets or none: the gRPC one is
// the stream socket, the attach one the sequential-packet socket. Their rights
// and files are the manager's: the daemon changes and removes neither.

#ifndef DATASETD_SERVER_SYSTEMD_SOCKET_ACTIVATION_H_
#define DATASETD_SERVER_SYSTEMD_SOCKET_ACTIVATION_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_descriptor.h"

namespace datasetd {

// Listening, not blocking, CLOEXEC.
struct ActivatedSockets {
  FileDescriptor grpc;
  std::string grpc_path;
  FileDescriptor attach;
  std::string attach_path;
};

// Takes them out of the environment, so that no child does. Nothing if there
// are none for this process. REQUIRES: called once, before any other thread.
//   INVALID_ARGUMENT  not exactly one of either kind; says what came instead
absl::StatusOr<std::optional<ActivatedSockets>> TakeActivatedSockets();

//   INVALID_ARGUMENT  they lie elsewhere than the configuration has them
absl::Status CheckPaths(const ActivatedSockets& sockets,
                        const std::string& socket_path,
                        const std::string& attach_socket_path);

// As TakeActivatedSockets, of descriptors [first, first + count), which it
// owns from now on.
absl::StatusOr<ActivatedSockets> ActivatedSocketsOf(int first, int count);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SOCKET_ACTIVATION_H_
