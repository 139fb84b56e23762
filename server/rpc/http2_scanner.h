// Finds the frame headers in one direction of an HTTP/2 connection, from bytes
// in pieces of any size (RFC 9113, section 4.1). Keeps no payload. Not
// thread-safe.

#ifndef DATASETD_SERVER_RPC_HTTP2_SCANNER_H_
#define DATASETD_SERVER_RPC_HTTP2_SCANNER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace datasetd {

// The first bytes that a client sends.
inline constexpr absl::string_view kHttp2Preface(
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);

enum class Http2FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoaway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

struct Http2Frame {
  static constexpr uint8_t kEndStream = 0x1;  // of DATA and HEADERS
  static constexpr uint8_t kAck = 0x1;        // of SETTINGS and PING

  uint32_t size_bytes = 0;                      // of the payload
  Http2FrameType type = Http2FrameType::kData;  // may be an unknown type
  uint8_t flags = 0;
  uint32_t stream_id = 0;

  bool Is(Http2FrameType other) const { return type == other; }
  bool IsEndOfStream() const {
    return (Is(Http2FrameType::kData) || Is(Http2FrameType::kHeaders)) &&
           (flags & kEndStream) != 0;
  }
};

class Http2Scanner {
 public:
  // `has_preface`: the stream comes from a client and starts with
  // kHttp2Preface.
  explicit Http2Scanner(bool has_preface)
      : skip_(has_preface ? kHttp2Preface.size() : 0) {}

  // Calls `on_frame` for each complete frame header, before its payload. Stops
  // and returns false when on_frame returns false.
  bool Scan(absl::Span<const uint8_t> bytes,
            absl::FunctionRef<bool(const Http2Frame& frame)> on_frame);

  // The number of `bytes` before the first frame of which `is_barrier`, or
  // before a frame header that they cut off. 0 if that header began before.
  size_t BytesBefore(
      absl::Span<const uint8_t> bytes,
      absl::FunctionRef<bool(const Http2Frame& frame)> is_barrier) const;

  // True if only complete frames have passed.
  bool is_at_boundary() const { return skip_ == 0 && header_size_ == 0; }

 private:
  static constexpr size_t kHeaderBytes = 9;

  // Removes bytes up to the end of a frame header, which it returns; empty if
  // the bytes end before.
  std::optional<Http2Frame> Next(absl::Span<const uint8_t>* bytes);
  // REQUIRES: header_ is complete.
  Http2Frame ParseHeader() const;

  size_t skip_;  // payload bytes still to skip
  size_t header_size_ = 0;
  std::array<uint8_t, kHeaderBytes> header_ = {};
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_HTTP2_SCANNER_H_
