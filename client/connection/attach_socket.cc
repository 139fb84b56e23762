#include "client/connection/attach_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "client/connection/error_detail.h"

namespace datasetd::client {
namespace {

absl::Status Malformed(const std::string& path, const std::string& what) {
  return absl::InternalError(absl::StrCat(
      "socket ", path, ": ", what,
      "; is it a datasetd, and of the same version as this client?"));
}

size_t SizeOf(attach::MessageType type) {
  switch (type) {
    case attach::MessageType::kWelcome:
      return sizeof(attach::Welcome);
    case attach::MessageType::kAttached:
      return sizeof(attach::Attached);
    case attach::MessageType::kGoodbye:
      return sizeof(attach::Goodbye);
    case attach::MessageType::kRefused:
      return sizeof(attach::Refused);
    case attach::MessageType::kWeightsAnswer:
      return sizeof(attach::WeightsAnswer);
    default:
      return 0;  // not sent by daemons
  }
}

absl::Status VersionMismatch(const std::string& path,
                             const std::string& version) {
  return WithDetail(
      absl::FailedPreconditionError(absl::StrCat(
          "the daemon at ", path, " speaks ", version, ", this client ",
          attach::kProtocolVersion,
          ": install the client that came with the daemon, or this client's "
          "daemon, and restart what runs")),
      ErrorDetail::kVersionMismatch);
}

absl::Status BrokenOff(const std::string& path) {
  return absl::CancelledError(
      absl::StrCat("waiting for the daemon at ", path, " was broken off"));
}

// Returns the time until `deadline` or until on_wait is due, if sooner.
absl::Duration NextStep(absl::Duration deadline) {
  return std::clamp(deadline - MonotonicNow(), absl::ZeroDuration(),
                    kWaitInterval);
}

void SetSendTimeout(int fd, absl::Duration timeout) {
  // A limit of 0 would mean no limit.
  const timeval limit = absl::ToTimeval(
      std::clamp(timeout, absl::Milliseconds(1), absl::Hours(1)));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

}  // namespace

absl::StatusOr<AttachSocket> AttachSocket::Connect(const std::string& path,
                                                   const CallLimits& limits) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket ", path, ": the path is too long"));
  }
  memcpy(name.sun_path, path.data(), path.size());
  GuardedFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.is_valid()) {
    return absl::ErrnoToStatus(errno, "socket(AF_UNIX, SOCK_SEQPACKET)");
  }
  const absl::Duration deadline = MonotonicNow() + limits.timeout;
  int error;
  for (;;) {
    // connect() blocks while the backlog is full.
    SetSendTimeout(fd.get(), NextStep(deadline));
    error = connect(fd.get(), reinterpret_cast<const sockaddr*>(&name),
                    sizeof(name)) == 0
                ? 0
                : errno;
    if (error != EINTR && error != EAGAIN) break;
    if (MonotonicNow() >= deadline) {
      error = EAGAIN;
      break;
    }
    if (!limits.MayGoOn()) return BrokenOff(path);
  }
  switch (error) {
    case 0:
      SetSendTimeout(fd.get(), limits.timeout);
      return AttachSocket(std::move(fd), path);
    case ENOENT:
    case ECONNREFUSED:
    case EAGAIN:
      return WithDetail(absl::UnavailableError(absl::StrCat(
                            "connect to ", path, ": ", strerror(error))),
                        ErrorDetail::kDaemonGone);
    case EPROTOTYPE:
      // Protocol 2 and before had a stream socket there.
      return VersionMismatch(path, "an earlier protocol version");
    case EACCES:
      return absl::PermissionDeniedError(
          absl::StrCat("this user may not connect to ", path,
                       ": join the group that owns the socket (datasetd)"));
    default:
      return absl::ErrnoToStatus(error, absl::StrCat("connect to ", path));
  }
}

absl::Status AttachSocket::SendBytes(
    const void* data, size_t size,
    absl::Span<const GuardedFd> descriptors) const {
  iovec part = {const_cast<void*>(data), size};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char
      control[CMSG_SPACE(attach::kMaxDescriptors * sizeof(int))] = {};
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    for (size_t i = 0; i < descriptors.size(); ++i) {
      const int fd = descriptors[i].get();
      memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(fd));
    }
  }
  ssize_t sent;
  do {
    sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(size)) return absl::OkStatus();
  if (errno == EPIPE || errno == ECONNRESET) return DaemonGoneError(path_);
  return absl::ErrnoToStatus(errno, absl::StrCat("send to ", path_));
}

absl::Status AttachSocket::RefusedError(
    uint32_t status_code, const char (&reason)[attach::kTextBytes]) const {
  const auto code = static_cast<absl::StatusCode>(status_code);
  const bool is_known = status_code >= 1 && status_code <= 16;
  // What the caller gave is wrong, as an argument of a call may be.
  if (code == absl::StatusCode::kInvalidArgument ||
      code == absl::StatusCode::kOutOfRange) {
    return absl::Status(code, ReasonText(reason));
  }
  return absl::Status(
      is_known ? code : absl::StatusCode::kUnknown,
      absl::StrCat("the daemon at ", path_, " refused: ", ReasonText(reason)));
}

bool AttachSocket::HasInput() const {
  pollfd entry = {.fd = fd_.get(), .events = POLLIN};
  return poll(&entry, 1, 0) > 0;
}

absl::StatusOr<AttachSocket::Packet> AttachSocket::Receive(
    const CallLimits& limits) {
  const absl::Duration deadline = MonotonicNow() + limits.timeout;
  for (;;) {
    pollfd entry = {.fd = fd_.get(), .events = POLLIN};
    const int ready =
        poll(&entry, 1,
             static_cast<int>(absl::ToInt64Milliseconds(
                 absl::Ceil(NextStep(deadline), absl::Milliseconds(1)))));
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) {
      return absl::ErrnoToStatus(errno, absl::StrCat("poll of ", path_));
    }
    if (MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("the daemon at ", path_, " sent nothing within ",
                       absl::FormatDuration(limits.timeout)));
    }
    if (!limits.MayGoOn()) return BrokenOff(path_);
  }

  Packet packet;
  iovec data = {packet.bytes.data(), packet.bytes.size()};
  alignas(
      cmsghdr) char control[CMSG_SPACE(attach::kMaxDescriptors * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  bool was_reset = false;
  for (;;) {
    size = recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size >= 0) break;
    // A reset is reported once, before a GOODBYE that was sent earlier.
    if (errno == ECONNRESET && !was_reset) {
      was_reset = true;
    } else if (errno != EINTR) {
      break;
    }
  }
  if (size == 0 || (size < 0 && errno == ECONNRESET)) {
    return DaemonGoneError(path_);
  }
  if (size < 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("receive from ", path_));
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      GuardedFd owned(fd);
      if (packet.num_descriptors < attach::kMaxDescriptors) {
        packet.descriptors[packet.num_descriptors++] = std::move(owned);
      }
    }
  }

  attach::Header header = {};
  if (static_cast<size_t>(size) < sizeof(header)) {
    return Malformed(path_, absl::StrCat("a packet of ", size, " bytes"));
  }
  memcpy(&header, packet.bytes.data(), sizeof(header));
  if (header.magic != attach::kMagic) {
    return Malformed(path_, "a packet without datasetd's mark");
  }
  if (header.version != attach::kProtocolVersion) {
    return VersionMismatch(path_,
                           absl::StrCat("protocol version ", header.version));
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "this process has no file descriptor left for what the daemon at ",
        path_, " sent: raise its limit (ulimit -n) or close some"));
  }
  if ((message.msg_flags & MSG_TRUNC) != 0 ||
      SizeOf(header.type) != static_cast<size_t>(size)) {
    return Malformed(path_, absl::StrCat("a message of type ",
                                         static_cast<uint32_t>(header.type),
                                         " with ", size, " bytes"));
  }
  if (header.type == attach::MessageType::kGoodbye) {
    return GoodbyeError(packet.As<attach::Goodbye>(), path_);
  }
  if (header.type == attach::MessageType::kRefused) {
    const auto refused = packet.As<attach::Refused>();
    return RefusedError(refused.status_code, refused.reason);
  }
  return packet;
}

}  // namespace datasetd::client
