#include "server/systemd/server_socket.h"

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

constexpr char kLink[] = "attach.sock";

// Held as long as the process lives, so that one daemon serves the socket.
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

absl::StatusOr<std::unique_ptr<ServerSocket>> ServerSocket::Lock(
    const v1::Config& config, std::optional<ActivatedSocket> activated) {
  std::unique_ptr<ServerSocket> socket(
      new ServerSocket(config, std::move(activated)));
  DATASETD_ASSIGN_OR_RETURN(socket->lock_, LockSocket(socket->path_));
  return socket;
}

ServerSocket::ServerSocket(const v1::Config& config,
                           std::optional<ActivatedSocket> activated)
    : path_(config.socket_path()),
      link_path_(absl::StrCat(path_.substr(0, path_.rfind('/') + 1), kLink)),
      group_(config.socket_group()),
      mode_(config.socket_mode()),
      activated_(std::move(activated)) {}

std::optional<ServerSocket::FileId> ServerSocket::FileAt(
    const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return std::nullopt;
  return FileId(status.st_dev, status.st_ino);
}

void ServerSocket::Remove() const {
  if (!created_.has_value() || FileAt(path_) != created_) return;
  struct stat link;
  if (FileAt(link_path_) == created_ && lstat(link_path_.c_str(), &link) == 0 &&
      S_ISLNK(link.st_mode)) {
    unlink(link_path_.c_str());
  }
  unlink(path_.c_str());
}

absl::StatusOr<FileDescriptor> ServerSocket::Listen() {
  if (activated_.has_value()) return std::move(activated_->fd);
  // Only this user may open the file until it has its group and mode.
  const mode_t previous_mask = umask(0177);
  auto listener = ListenUnix(path_, SOCK_SEQPACKET, [&] {
    created_ = FileAt(path_);
    return SetRightsOf(path_, group_, mode_);
  });
  umask(previous_mask);
  // Without it clients of earlier versions find no daemon.
  const std::string name = path_.substr(path_.rfind('/') + 1);
  (void)!symlink(name.c_str(), link_path_.c_str());
  return listener;
}

}  // namespace datasetd
