#include "server/rpc/rpc_leash.h"

#include <algorithm>
#include <utility>

namespace datasetd {
namespace {

// Interrupting a job abandons a call or two.
constexpr double kAbandonedBurst = 64;
constexpr double kAbandonedPerSecond = 8;
// Limits on frames that carry neither a call nor its data. Clients send PINGs
// to measure the bandwidth, and window updates while they receive.
constexpr double kControlBurst = 1000;
constexpr double kControlPerSecond = 100;
constexpr double kControlPerAnswer = 2;
// For DATA: smaller frames cost more to process than they carry. A message ends
// in one now and then, for which its other frames pay.
constexpr uint32_t kSmallDataBytes = 64;
constexpr double kDataBytesPerControl = 16 << 10;
// gRPC accepts 8 KiB of metadata.
constexpr size_t kMaxHeaderBytes = 32 << 10;

// True for server frames that the client answers with its own frames. None of
// them responds to something that a client may send without a call.
bool IsAnswered(const Http2Frame& frame) {
  switch (frame.type) {
    case Http2FrameType::kHeaders:
    case Http2FrameType::kData:
      return true;
    case Http2FrameType::kPing:
    case Http2FrameType::kSettings:
      return (frame.flags & Http2Frame::kAck) == 0;
    default:
      return false;
  }
}

}  // namespace

RpcLeash::RpcLeash(absl::Duration now)
    : abandoned_(kAbandonedBurst, kAbandonedPerSecond, now),
      control_(kControlBurst, kControlPerSecond, now) {
  streams_.reserve(kMaxStreams);
}

const char* RpcLeash::CheckToServer(absl::Span<const uint8_t> bytes,
                                    absl::Duration now) {
  const char* reason = nullptr;
  to_server_.Scan(bytes, [&](const Http2Frame& frame) {
    partial_since_ = absl::InfiniteDuration();
    reason = CheckFrame(frame, now);
    return reason == nullptr;
  });
  if (to_server_.is_at_boundary() || is_data_) {
    partial_since_ = absl::InfiniteDuration();
  } else {
    partial_since_ = std::min(partial_since_, now);
  }
  return reason;
}

size_t RpcLeash::BytesBeforeCall(absl::Span<const uint8_t> bytes,
                                 int max_calls) const {
  int num_calls = 0;
  const size_t size =
      to_server_.BytesBefore(bytes, [&](const Http2Frame& frame) {
        return Opens(frame) && ++num_calls > max_calls;
      });
  // A part of a frame header may pass while a call may.
  return num_calls <= max_calls && max_calls > 0 ? bytes.size() : size;
}

bool RpcLeash::has_unsent() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const Stream& stream) { return !stream.is_sent; });
}

bool RpcLeash::Opens(const Http2Frame& frame) const {
  return frame.Is(Http2FrameType::kHeaders) &&
         frame.stream_id > last_stream_id_;
}

const char* RpcLeash::CheckFrame(const Http2Frame& frame, absl::Duration now) {
  is_data_ = frame.Is(Http2FrameType::kData) && frame.size_bytes > 0;
  switch (frame.type) {
    case Http2FrameType::kHeaders: {
      const char* const reason = CheckHeaders(frame, now);
      if (reason == nullptr) NoteEnd(frame);
      return reason;
    }
    case Http2FrameType::kContinuation:
      header_bytes_ += frame.size_bytes;
      if (header_bytes_ > kMaxHeaderBytes) {
        return "the metadata of a call is too large";
      }
      return CountControl(now);
    case Http2FrameType::kData:
      NoteEnd(frame);
      if (frame.size_bytes < kSmallDataBytes) return CountControl(now);
      control_.Give(frame.size_bytes / kDataBytesPerControl);
      return nullptr;
    case Http2FrameType::kRstStream:
      if (!Close(frame.stream_id)) return CountControl(now);
      ++num_abandoned_;
      if (abandoned_.Take(1, now)) return nullptr;
      return "too many calls were given up";
    default:
      return CountControl(now);
  }
}

const char* RpcLeash::CheckHeaders(const Http2Frame& frame,
                                   absl::Duration now) {
  header_bytes_ = frame.size_bytes;
  if (header_bytes_ > kMaxHeaderBytes) {
    return "the metadata of a call is too large";
  }
  // Else trailers, or a stream that gRPC refuses.
  if (!Opens(frame)) return CountControl(now);
  last_stream_id_ = frame.stream_id;
  if (num_streams() >= kMaxStreams) return "too many calls at a time";
  streams_.push_back({frame.stream_id, /*is_sent=*/false});
  return nullptr;
}

const char* RpcLeash::CountControl(absl::Duration now) {
  return control_.Take(1, now) ? nullptr : "too many frames without a call";
}

void RpcLeash::SeeToClient(absl::Span<const uint8_t> bytes) {
  to_client_.Scan(bytes, [&](const Http2Frame& frame) {
    if (IsAnswered(frame)) control_.Give(kControlPerAnswer);
    if (frame.IsEndOfStream() || frame.Is(Http2FrameType::kRstStream)) {
      Close(frame.stream_id);
    }
    return true;
  });
}

void RpcLeash::NoteEnd(const Http2Frame& frame) {
  if (!frame.IsEndOfStream()) return;
  const auto found = Find(frame.stream_id);
  if (found != streams_.end()) found->is_sent = true;
}

std::vector<RpcLeash::Stream>::iterator RpcLeash::Find(uint32_t stream_id) {
  return std::find_if(
      streams_.begin(), streams_.end(),
      [stream_id](const Stream& stream) { return stream.id == stream_id; });
}

bool RpcLeash::Close(uint32_t stream_id) {
  const auto found = Find(stream_id);
  if (found == streams_.end()) return false;
  *found = streams_.back();
  streams_.pop_back();
  return true;
}

int RpcLeash::TakeAbandoned() { return std::exchange(num_abandoned_, 0); }

}  // namespace datasetd
