// The daemon's two sockets: created as files, or passed by a service manager.
//
// While this object exists, no other daemon can serve them. The destructor
// removes the files that the daemon created; their permissions come from the
// configuration. Not thread-safe.

#ifndef DATASETD_SERVER_SYSTEMD_SERVER_SOCKETS_H_
#define DATASETD_SERVER_SYSTEMD_SERVER_SOCKETS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_descriptor.h"
#include "datasetd/v1/server.pb.h"
#include "server/systemd/socket_activation.h"

namespace datasetd {

class ServerSockets {
 public:
  // REQUIRES: `config` has its defaults (server/config/config.h), and
  // `activated` matches it (CheckPaths).
  //   FAILED_PRECONDITION  another daemon serves the sockets
  // Also errors of system calls.
  static absl::StatusOr<std::unique_ptr<ServerSockets>> Lock(
      const v1::Config& config, std::optional<ActivatedSockets> activated);
  ~ServerSockets();

  ServerSockets(const ServerSockets&) = delete;
  ServerSockets& operator=(const ServerSockets&) = delete;

  // Return a listening socket, to which the configured group may connect; those
  // that were passed are as they were. REQUIRES: called once.
  //   NOT_FOUND  there is no such group
  absl::StatusOr<FileDescriptor> ListenAttach();
  absl::StatusOr<FileDescriptor> ListenGrpc();
  // Removes the files that ListenAttach and ListenGrpc created, unless others
  // have taken their places. Also called by the destructor.
  void Remove() const;

 private:
  // A device and an inode.
  using FileId = std::pair<dev_t, ino_t>;
  struct Socket {
    std::string path;
    FileDescriptor lock;
    std::optional<FileId> created;  // its file, if the daemon created that
  };
  static std::optional<FileId> FileAt(const std::string& path);

  ServerSockets(const v1::Config& config,
                std::optional<ActivatedSockets> activated);
  absl::StatusOr<FileDescriptor> Listen(int type, Socket& socket) const;

  Socket grpc_;
  Socket attach_;
  const std::string group_;                    // empty: the daemon's group
  const std::string mode_;                     // octal
  std::optional<ActivatedSockets> activated_;  // until they are used
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SERVER_SOCKETS_H_
