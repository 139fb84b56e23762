// Sockets created and passed by a service manager: sd_listen_fds(3).
//
// They arrive as descriptors 3 and up, announced by $LISTEN_FDS and
// $LISTEN_PID. The daemon accepts both of its sockets or none: the stream
// socket is gRPC's, the sequential-packet socket is the attach socket. The
// manager owns their files and permissions; the daemon does not change or
// remove them.

#ifndef DATASETD_SERVER_SYSTEMD_SOCKET_ACTIVATION_H_
#define DATASETD_SERVER_SYSTEMD_SOCKET_ACTIVATION_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_descriptor.h"

namespace datasetd {

// Listening, non-blocking, CLOEXEC.
struct ActivatedSockets {
  FileDescriptor grpc;
  std::string grpc_path;
  FileDescriptor attach;
  std::string attach_path;
};

// Takes the sockets and removes them from the environment, so that no child
// inherits them. Empty if there are none for this process. REQUIRES: called
// once, before other threads start.
//   INVALID_ARGUMENT  not exactly one of each kind; says what was passed
absl::StatusOr<std::optional<ActivatedSockets>> TakeActivatedSockets();

//   INVALID_ARGUMENT  their paths differ from the configuration
absl::Status CheckPaths(const ActivatedSockets& sockets,
                        const std::string& socket_path,
                        const std::string& attach_socket_path);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SOCKET_ACTIVATION_H_
