#include "server/attach/seqpacket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/attach_protocol.h"

namespace datasetd {
namespace {

// A client that finds the queue full fails or waits.
constexpr int kListenBacklog = 1024;

}  // namespace

absl::StatusOr<FileDescriptor> ListenUnix(
    const std::string& path, int type,
    const std::function<absl::Status()>& prepare) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path ", path, " is longer than ", sizeof(address.sun_path) - 1,
        " bytes; choose a shorter directory"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  FileDescriptor fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.has_value()) return absl::ErrnoToStatus(errno, "socket");
  struct stat status;
  if (lstat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path,
        " is there, and is no socket; remove it, or choose another "
        "path"));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno, absl::StrCat("unlink ", path));
  }
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
      0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("bind ", path));
  }
  if (prepare != nullptr) DATASETD_RETURN_IF_ERROR(prepare());
  if (listen(fd.get(), kListenBacklog) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("listen ", path));
  }
  return fd;
}

bool SendSeqpacket(int fd, const void* data, size_t size_bytes,
                   absl::Span<const int> descriptors) {
  iovec part = {const_cast<void*>(data), size_bytes};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char
      control[CMSG_SPACE(sizeof(int) * attach::kMaxDescriptors)] = {};
  if (!descriptors.empty()) {
    const size_t bytes = sizeof(int) * descriptors.size();
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), descriptors.data(), bytes);
  }
  return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(size_bytes);
}

}  // namespace datasetd
