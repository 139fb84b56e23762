// The socket created and passed by a service manager: sd_listen_fds(3).
//
// It arrives as descriptor 3, announced by $LISTEN_FDS and $LISTEN_PID. The
// manager owns its file and permissions; the daemon does not change or remove
// it.

#ifndef DATASETD_SERVER_SYSTEMD_SOCKET_ACTIVATION_H_
#define DATASETD_SERVER_SYSTEMD_SOCKET_ACTIVATION_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_descriptor.h"

namespace datasetd {

// Listening, non-blocking, CLOEXEC.
struct ActivatedSocket {
  FileDescriptor fd;
  std::string path;
};

// Takes the socket and removes it from the environment, so that no child
// inherits it. Empty if there is none for this process. REQUIRES: called once,
// before other threads start.
//   INVALID_ARGUMENT  not exactly one, of packets; says what was passed
absl::StatusOr<std::optional<ActivatedSocket>> TakeActivatedSocket();

//   INVALID_ARGUMENT  its path differs from the configuration
absl::Status CheckPath(const ActivatedSocket& socket,
                       const std::string& socket_path);

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SOCKET_ACTIVATION_H_
