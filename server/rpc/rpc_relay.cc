#include "server/rpc/rpc_relay.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "server/rpc/http2_scanner.h"

namespace datasetd {
namespace {

constexpr size_t kGoawayBytes = 17;
constexpr uint32_t kEnhanceYourCalm = 0xb;

// For bytes that `side` takes no more.
RpcRelay::Result AfterTheEndOf(RpcRelay::Side side) {
  // Data that gRPC sent before closing is still to be read.
  return side == RpcRelay::Side::kServer ? RpcRelay::Result::kIdle
                                         : RpcRelay::Result::kClientClosed;
}

}  // namespace

RpcRelay::Preface RpcRelay::LookForPreface() const {
  char head[kHttp2Preface.size()];
  const ssize_t size =
      recv(fd(Side::kClient), head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
  if (size < 0) return errno == EAGAIN ? Preface::kPartial : Preface::kWrong;
  const absl::string_view sent(head, static_cast<size_t>(size));
  if (sent != kHttp2Preface.substr(0, sent.size())) return Preface::kWrong;
  return sent.size() == kHttp2Preface.size() ? Preface::kComplete
                                             : Preface::kPartial;
}

RpcRelay::Result RpcRelay::Move(Side from, int max_calls,
                                absl::Span<uint8_t> buffer,
                                absl::Duration now) {
  const Side to = from == Side::kClient ? Side::kServer : Side::kClient;
  std::string& rest = rest_[Index(from)];
  if (!rest.empty()) {
    const std::string bytes = std::move(rest);
    rest.clear();
    return Send(from,
                {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                now);
  }
  // A socket is writable while three quarters of its buffer are free, which is
  // more than a turn moves.
  pollfd room = {.fd = fd(to), .events = POLLOUT, .revents = 0};
  poll(&room, 1, 0);
  if ((room.revents & (POLLERR | POLLHUP)) != 0) {
    return AfterTheEndOf(to);
  }
  if ((room.revents & POLLOUT) == 0) {
    absl::Duration& since = blocked_since_[Index(from)];
    since = std::min(since, now);
    return Result::kBlocked;
  }
  blocked_since_[Index(from)] = absl::InfiniteDuration();
  if (from == Side::kServer) {
    const ssize_t size =
        recv(fd(from), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0) return errno == EAGAIN ? Result::kIdle : Result::kGrpcClosed;
    if (size == 0) return Result::kGrpcClosed;
    const absl::Span<const uint8_t> bytes =
        buffer.subspan(0, static_cast<size_t>(size));
    leash_.SeeToClient(bytes);
    return Send(from, bytes, now);
  }
  return MoveToServer(max_calls, buffer, now);
}

RpcRelay::Result RpcRelay::MoveToServer(int max_calls,
                                        absl::Span<uint8_t> buffer,
                                        absl::Duration now) {
  const int client = fd(Side::kClient);
  const auto allowed = [&](ssize_t size) {
    return leash_.BytesBeforeCall(buffer.subspan(0, static_cast<size_t>(size)),
                                  max_calls);
  };
  if (held_.empty() && max_calls == 0) {
    // What may not pass stays in the socket.
    const ssize_t size =
        recv(client, buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT);
    if (size > 0) {
      buffer = buffer.subspan(0, allowed(size));
      if (buffer.empty()) return Result::kHeld;
    }
  }
  ssize_t size = static_cast<ssize_t>(held_.size());
  if (size > 0) {
    std::copy(held_.begin(), held_.end(), buffer.begin());
  } else {
    size = recv(client, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0) {
      return errno == EAGAIN ? Result::kIdle : Result::kClientClosed;
    }
    if (size == 0) return Result::kClientClosed;
  }
  const size_t num_allowed = allowed(size);
  held_.assign(buffer.begin() + num_allowed, buffer.begin() + size);
  if (num_allowed == 0) return Result::kHeld;
  const absl::Span<const uint8_t> bytes = buffer.subspan(0, num_allowed);
  reason_ = leash_.CheckToServer(bytes, now);
  if (reason_ != nullptr) return Result::kAbusive;
  return Send(Side::kClient, bytes, now);
}

RpcRelay::Result RpcRelay::Send(Side from, absl::Span<const uint8_t> bytes,
                                absl::Duration now) {
  const Side to = from == Side::kClient ? Side::kServer : Side::kClient;
  const ssize_t sent =
      send(fd(to), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM) {
    return AfterTheEndOf(to);
  }
  bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
  if (bytes.empty()) return Result::kMore;
  rest_[Index(from)].assign(bytes.begin(), bytes.end());
  absl::Duration& since = blocked_since_[Index(from)];
  since = std::min(since, now);
  return Result::kBlocked;
}

void RpcRelay::SayEnhanceYourCalm() const {
  if (!leash_.is_answer_at_boundary() || !rest_[Index(Side::kServer)].empty()) {
    return;
  }
  uint8_t frame[kGoawayBytes] = {0, 0, 8,
                                 static_cast<uint8_t>(Http2FrameType::kGoaway)};
  for (int i = 0; i < 4; ++i) {
    frame[9 + i] =
        static_cast<uint8_t>(leash_.last_stream_id() >> (24 - 8 * i));
    frame[13 + i] = static_cast<uint8_t>(kEnhanceYourCalm >> (24 - 8 * i));
  }
  (void)send(fd(Side::kClient), frame, sizeof(frame),
             MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace datasetd
