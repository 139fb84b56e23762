#include "server/systemd/server_sockets.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/attach/seqpacket.h"

namespace datasetd {
namespace {

// Held as long as the process lives, so that one daemon serves each socket.
absl::StatusOr<FileDescriptor> LockSocket(const std::string& socket_path) {
  const std::string path = socket_path + ".lock";
  // Does not follow a link, which another user may have put there.
  FileDescriptor fd(open(path.c_str(),
                         O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                         0600));
  if (!fd.has_value() && errno == ELOOP) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        ": it is a symbolic link; remove it, and put the sockets where no "
        "other user can write"));
  }
  if (!fd.has_value()) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot open ", path,
                            " (does the directory of 'socket_path' exist?)"));
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("another datasetd serves ", socket_path,
                     "; stop it, or choose another socket_path"));
  }
  return fd;
}

absl::Status SetRightsOf(const std::string& path, const std::string& group_name,
                         const std::string& octal_mode) {
  if (!group_name.empty()) {
    const group* const entry = getgrnam(group_name.c_str());
    if (entry == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("socket_group: there is no group '", group_name, "'"));
    }
    if (chown(path.c_str(), static_cast<uid_t>(-1), entry->gr_gid) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("chown ", path));
    }
  }
  const mode_t mode =
      static_cast<mode_t>(std::strtoul(octal_mode.c_str(), nullptr, 8));
  if (chmod(path.c_str(), mode) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("chmod ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerSockets>> ServerSockets::Lock(
    const v1::Config& config, std::optional<ActivatedSockets> activated) {
  std::unique_ptr<ServerSockets> sockets(
      new ServerSockets(config, std::move(activated)));
  for (Socket* const socket : {&sockets->grpc_, &sockets->attach_}) {
    DATASETD_ASSIGN_OR_RETURN(socket->lock, LockSocket(socket->path));
  }
  return sockets;
}

ServerSockets::ServerSockets(const v1::Config& config,
                             std::optional<ActivatedSockets> activated)
    : grpc_{.path = config.socket_path()},
      attach_{.path = config.attach_socket_path()},
      group_(config.socket_group()),
      mode_(config.socket_mode()),
      activated_(std::move(activated)) {}

ServerSockets::~ServerSockets() { Remove(); }

std::optional<ServerSockets::FileId> ServerSockets::FileAt(
    const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return std::nullopt;
  return FileId(status.st_dev, status.st_ino);
}

void ServerSockets::Remove() const {
  for (const Socket* const socket : {&attach_, &grpc_}) {
    if (socket->created.has_value() &&
        FileAt(socket->path) == socket->created) {
      unlink(socket->path.c_str());
    }
  }
}

absl::StatusOr<FileDescriptor> ServerSockets::ListenAttach() {
  if (activated_.has_value()) return std::move(activated_->attach);
  return Listen(SOCK_SEQPACKET, attach_);
}

absl::StatusOr<FileDescriptor> ServerSockets::ListenGrpc() {
  if (activated_.has_value()) return std::move(activated_->grpc);
  return Listen(SOCK_STREAM, grpc_);
}

absl::StatusOr<FileDescriptor> ServerSockets::Listen(int type,
                                                     Socket& socket) const {
  // Only this user may open the file until it has its group and mode.
  const mode_t previous_mask = umask(0177);
  auto listener = ListenUnix(socket.path, type, [&] {
    socket.created = FileAt(socket.path);
    return SetRightsOf(socket.path, group_, mode_);
  });
  umask(previous_mask);
  return listener;
}

}  // namespace datasetd
