// The daemon's two sockets: created as files, or passed by a service manager.
//
// While this object exists, no other daemon can serve them. The destructor
// removes the files that the daemon created; their permissions come from the
// configuration. Not thread-safe.

#ifndef DATASETD_SERVER_SYSTEMD_SERVER_SOCKETS_H_
#define DATASETD_SERVER_SYSTEMD_SERVER_SOCKETS_H_

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

  // Returns the listening attach socket. REQUIRES: called once.
  absl::StatusOr<FileDescriptor> ListenAttach();
  // Returns the listening gRPC socket. REQUIRES: called once.
  absl::StatusOr<FileDescriptor> ListenGrpc();
  // Lets the configured group connect. Does not change sockets that were
  // passed. REQUIRES: both files exist.
  //   NOT_FOUND  there is no such group
  absl::Status SetRights() const;
  // Removes the files unless they were passed. Also called by the destructor.
  void Remove() const;

 private:
  ServerSockets(const v1::Config& config,
                std::optional<ActivatedSockets> activated);

  const std::string grpc_path_;
  const std::string attach_path_;
  const std::string group_;  // empty: the daemon's group
  const std::string mode_;   // octal
  const bool is_activated_;
  std::optional<ActivatedSockets> activated_;  // until they are used
  FileDescriptor grpc_lock_;
  FileDescriptor attach_lock_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SERVER_SOCKETS_H_
