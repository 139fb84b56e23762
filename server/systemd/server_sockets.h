// The files of the daemon's two sockets, or what a service manager passed in
// their place.
//
// While it lives, no other daemon serves them. Files that the daemon made are
// removed with it; their rights are the configuration's. Not thread-safe.

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
  // `activated` are its sockets (CheckPaths).
  //   FAILED_PRECONDITION  another daemon serves them
  //   and what system calls say
  static absl::StatusOr<std::unique_ptr<ServerSockets>> Lock(
      const v1::Config& config, std::optional<ActivatedSockets> activated);
  ~ServerSockets();

  ServerSockets(const ServerSockets&) = delete;
  ServerSockets& operator=(const ServerSockets&) = delete;

  // The attach socket, listening. REQUIRES: called once.
  absl::StatusOr<FileDescriptor> ListenAttach();
  // The gRPC socket, listening. REQUIRES: called once.
  absl::StatusOr<FileDescriptor> ListenGrpc();
  // Lets the configured group connect. REQUIRES: both files are there. What was
  // passed is left as it is.
  //   NOT_FOUND  there is no such group
  absl::Status SetRights() const;
  // Removes the files, unless they were passed. The destructor does, too.
  void Remove() const;

 private:
  ServerSockets(const v1::Config& config,
                std::optional<ActivatedSockets> activated);

  const std::string grpc_path_;
  const std::string attach_path_;
  const std::string group_;  // empty: the daemon's
  const std::string mode_;   // octal
  const bool is_activated_;
  std::optional<ActivatedSockets> activated_;  // until they are in use
  FileDescriptor grpc_lock_;
  FileDescriptor attach_lock_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SERVER_SOCKETS_H_
