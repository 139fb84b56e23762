#include "server/systemd/socket_activation.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

constexpr int kFirstDescriptor = 3;
constexpr int kMaxDescriptors = 64;

constexpr char kExpected[] =
    "; expected one ListenSequentialPacket= with a path, as in "
    "datasetd.socket of this version (systemctl daemon-reload, and restart "
    "datasetd.socket after an upgrade)";

absl::StatusOr<int> SocketOption(int fd, int option) {
  int value = 0;
  socklen_t length = sizeof(value);
  if (getsockopt(fd, SOL_SOCKET, option, &value, &length) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("passed descriptor ", fd, " is no socket", kExpected));
  }
  return value;
}

// The path that the socket is bound to, or empty.
std::string BoundPath(int fd) {
  sockaddr_un address = {};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      address.sun_family != AF_UNIX ||
      length <= offsetof(sockaddr_un, sun_path)) {
    return "";
  }
  // The kernel terminates it with a zero unless it fills the array.
  const size_t size = length - offsetof(sockaddr_un, sun_path);
  std::string path(address.sun_path, size);
  if (path.back() == '\0') path.pop_back();
  return path[0] == '/' ? path : "";
}

absl::Status SetFlags(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "fcntl of a passed socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<ActivatedSocket> ActivatedSocketOf(FileDescriptor fd) {
  DATASETD_ASSIGN_OR_RETURN(const int type, SocketOption(fd.get(), SO_TYPE));
  DATASETD_ASSIGN_OR_RETURN(const int is_listening,
                            SocketOption(fd.get(), SO_ACCEPTCONN));
  std::string path = BoundPath(fd.get());
  if (is_listening == 0 || path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "passed socket ", fd.get(), " does not listen on a path", kExpected));
  }
  if (type != SOCK_SEQPACKET) {
    return absl::InvalidArgumentError(absl::StrCat(
        "passed socket ", path, " is not one of packets", kExpected));
  }
  DATASETD_RETURN_IF_ERROR(SetFlags(fd.get()));
  return ActivatedSocket{std::move(fd), std::move(path)};
}

}  // namespace

absl::StatusOr<std::optional<ActivatedSocket>> TakeActivatedSocket() {
  const char* const process = std::getenv("LISTEN_PID");
  const char* const number = std::getenv("LISTEN_FDS");
  const bool is_ours = process != nullptr && absl::StrCat(getpid()) == process;
  const std::string count_text = number == nullptr ? "" : number;
  unsetenv("LISTEN_PID");
  unsetenv("LISTEN_FDS");
  unsetenv("LISTEN_FDNAMES");
  if (!is_ours || count_text.empty()) return std::nullopt;
  int count = 0;
  if (!absl::SimpleAtoi(count_text, &count) || count < 0 ||
      count > kMaxDescriptors) {
    return absl::InvalidArgumentError(
        absl::StrCat("LISTEN_FDS is '", count_text, "', expected a number"));
  }
  if (count == 0) return std::nullopt;
  std::vector<FileDescriptor> passed;
  for (int i = 0; i < count; ++i) passed.emplace_back(kFirstDescriptor + i);
  if (count > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(count, " sockets were passed", kExpected));
  }
  DATASETD_ASSIGN_OR_RETURN(ActivatedSocket socket,
                            ActivatedSocketOf(std::move(passed.front())));
  return std::optional<ActivatedSocket>(std::move(socket));
}

absl::Status CheckPath(const ActivatedSocket& socket,
                       const std::string& socket_path) {
  if (socket.path == socket_path) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "socket_path is ", socket_path, ", but the service manager passed ",
      socket.path, "; make datasetd.socket and the configuration agree"));
}

}  // namespace datasetd
