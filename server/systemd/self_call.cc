#include "server/systemd/self_call.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

constexpr size_t kFrameHeaderBytes = 9;
constexpr size_t kMaxReceivedBytes = 64 << 10;
constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kResetStream = 3;
constexpr uint8_t kSettings = 4;
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;

// A frame of HTTP/2 (RFC 9113).
std::string Frame(uint8_t type, uint8_t flags, uint8_t stream,
                  absl::string_view payload) {
  std::string frame(kFrameHeaderBytes, '\0');
  frame[1] = static_cast<char>(payload.size() >> 8);
  frame[2] = static_cast<char>(payload.size());
  frame[3] = static_cast<char>(type);
  frame[4] = static_cast<char>(flags);
  frame[8] = static_cast<char>(stream);
  return frame.append(payload.data(), payload.size());
}

std::string Text(absl::string_view text) {
  return absl::StrCat(std::string(1, static_cast<char>(text.size())), text);
}

// GetStatus with an empty request. The headers are literals of RFC 7541 without
// compression, or indices of its static table.
std::string Call() {
  const std::string headers = absl::StrCat(
      "\x83\x86",                                            // POST, http
      "\x04", Text("/datasetd.v1.ServerService/GetStatus"),  // :path
      "\x01", Text("localhost"),                             // :authority
      "\x0f\x10", Text("application/grpc"),                  // its type
      absl::string_view("\0", 1), Text("te"), Text("trailers"));
  return absl::StrCat(
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Frame(kSettings, 0, 0, ""),
      Frame(kHeaders, kEndHeaders, 1, headers),
      Frame(kData, kEndStream, 1, absl::string_view("\0\0\0\0\0", 5)));
}

// True if the frames contain an answer to stream 1.
bool HasAnswer(absl::string_view frames) {
  while (frames.size() >= kFrameHeaderBytes) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(frames[i]); };
    if (byte(8) == 1 && (byte(3) == kHeaders || byte(3) == kResetStream)) {
      return true;
    }
    const size_t size = kFrameHeaderBytes + (size_t{byte(0)} << 16 |
                                             size_t{byte(1)} << 8 | byte(2));
    if (size > frames.size()) return false;
    frames.remove_prefix(size);
  }
  return false;
}

}  // namespace

absl::Status SelfCall::Check() {
  if (connection_.has_value() && HasCome()) {
    connection_ = FileDescriptor();
    is_awaited_ = false;
    num_missed_ = 0;
  }
  const absl::Duration now = clock_->Monotonic();
  if (now - begun_ >= kCallAge) {
    if (is_awaited_) ++num_missed_;
    begun_ = now;
    Begin();
    if (!is_awaited_) num_missed_ = 0;
  }
  if (num_missed_ <= kMaxMissed) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("gRPC has not answered the last ", num_missed_,
                   " calls of this daemon to itself, each for ",
                   absl::FormatDuration(kCallAge),
                   ": its threads are stuck, or were refused memory"));
}

bool SelfCall::HasCome() {
  char buffer[4096];
  while (true) {
    const ssize_t size =
        recv(connection_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return false;
    if (size <= 0) return true;  // refused
    received_.append(buffer, static_cast<size_t>(size));
    if (HasAnswer(received_) || received_.size() > kMaxReceivedBytes) {
      return true;
    }
  }
}

void SelfCall::Begin() {
  connection_ = connect_();
  received_.clear();
  is_awaited_ = connection_.has_value();
  if (!is_awaited_) return;
  const std::string call = Call();
  // The socket is empty and takes it; if not, there is no answer.
  (void)send(connection_.get(), call.data(), call.size(),
             MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace datasetd
