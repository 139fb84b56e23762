// The daemon's socket: created as a file, or passed by a service manager.
//
// While this object exists, no other daemon can serve it. The destructor
// removes the file that the daemon created; its permissions come from the
// configuration. Beside it lies a link, attach.sock, at which clients of
// protocol 2 and before look for a daemon: they are told their version. Not
// thread-safe.

#ifndef DATASETD_SERVER_SYSTEMD_SERVER_SOCKET_H_
#define DATASETD_SERVER_SYSTEMD_SERVER_SOCKET_H_

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

class ServerSocket {
 public:
  // REQUIRES: `config` has its defaults (server/config/config.h), and
  // `activated` matches it (CheckPath).
  //   FAILED_PRECONDITION  another daemon serves the socket
  // Also errors of system calls.
  static absl::StatusOr<std::unique_ptr<ServerSocket>> Lock(
      const v1::Config& config, std::optional<ActivatedSocket> activated);
  ~ServerSocket() { Remove(); }

  ServerSocket(const ServerSocket&) = delete;
  ServerSocket& operator=(const ServerSocket&) = delete;

  // Returns the listening socket, to which the configured group may connect;
  // one that was passed is as it was. REQUIRES: called once.
  //   NOT_FOUND  there is no such group
  absl::StatusOr<FileDescriptor> Listen();
  // Removes the file that Listen created, and the link to it, unless others
  // have taken their places. Also called by the destructor.
  void Remove() const;

 private:
  // A device and an inode.
  using FileId = std::pair<dev_t, ino_t>;
  static std::optional<FileId> FileAt(const std::string& path);

  ServerSocket(const v1::Config& config,
               std::optional<ActivatedSocket> activated);

  const std::string path_;
  const std::string link_path_;
  FileDescriptor lock_;
  std::optional<FileId> created_;  // the file, if the daemon created it
  const std::string group_;        // empty: the daemon's group
  const std::string mode_;         // octal
  std::optional<ActivatedSocket> activated_;  // until it is used
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_SERVER_SOCKET_H_
