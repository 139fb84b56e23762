#include "server/readers/hdf5/hdf5_wire.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd::hdf5 {
namespace {

absl::Status SendAll(int fd, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::UnavailableError("the other end is gone");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Send(int fd, Kind kind, absl::Span<const uint8_t> payload) {
  const Frame frame = {kind, payload.size()};
  DATASETD_RETURN_IF_ERROR(SendAll(fd, BytesOf(frame)));
  return SendAll(fd, payload);
}

absl::Status Receive(int fd, int timeout_ms, absl::Span<uint8_t> buffer) {
  while (!buffer.empty()) {
    pollfd poller = {.fd = fd, .events = POLLIN};
    const int ready = poll(&poller, 1, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return absl::DeadlineExceededError(
          absl::StrCat("nothing was said for ", timeout_ms / 1000, " s"));
    }
    const ssize_t count = recv(fd, buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::UnavailableError("the other end is gone");
    buffer.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

absl::StatusOr<Frame> ReceiveFrame(int fd, int timeout_ms) {
  Frame frame = {};
  DATASETD_RETURN_IF_ERROR(Receive(
      fd, timeout_ms,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(&frame), sizeof(frame))));
  return frame;
}

absl::StatusOr<std::string> ReceiveText(int fd, int timeout_ms,
                                        uint64_t size_bytes) {
  std::string text(size_bytes, '\0');
  DATASETD_RETURN_IF_ERROR(Receive(
      fd, timeout_ms,
      absl::MakeSpan(reinterpret_cast<uint8_t*>(text.data()), text.size())));
  return text;
}

}  // namespace datasetd::hdf5
