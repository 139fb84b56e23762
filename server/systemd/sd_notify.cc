#include "server/systemd/sd_notify.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace datasetd {

bool SdNotify(const std::string& state) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) {
    return true;
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) return true;
  std::memcpy(address.sun_path, path, length);
  // '@' stands for the abstract namespace.
  if (path[0] == '@') address.sun_path[0] = '\0';
  // Opened once: when READY is reported, the daemon has its final set of
  // descriptors.
  static const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return true;
  const ssize_t sent =
      sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
             reinterpret_cast<const sockaddr*>(&address),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
  return sent >= 0 || (errno != EAGAIN && errno != ENOBUFS);
}

}  // namespace datasetd
