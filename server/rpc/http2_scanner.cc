#include "server/rpc/http2_scanner.h"

#include <algorithm>

namespace datasetd {

Http2Frame Http2Scanner::ParseHeader() const {
  const auto word = [this](size_t i) { return uint32_t{header_[i]}; };
  return {.size_bytes = word(0) << 16 | word(1) << 8 | word(2),
          .type = static_cast<Http2FrameType>(header_[3]),
          .flags = header_[4],
          // The first bit is reserved.
          .stream_id =
              (word(5) & 0x7f) << 24 | word(6) << 16 | word(7) << 8 | word(8)};
}

std::optional<Http2Frame> Http2Scanner::Next(absl::Span<const uint8_t>* bytes) {
  const size_t skipped = std::min(skip_, bytes->size());
  skip_ -= skipped;
  bytes->remove_prefix(skipped);
  const size_t taken = std::min(kHeaderBytes - header_size_, bytes->size());
  std::copy_n(bytes->begin(), taken, header_.begin() + header_size_);
  header_size_ += taken;
  bytes->remove_prefix(taken);
  if (header_size_ < kHeaderBytes) return std::nullopt;
  header_size_ = 0;
  const Http2Frame frame = ParseHeader();
  skip_ = frame.size_bytes;
  return frame;
}

size_t Http2Scanner::BytesBefore(
    absl::Span<const uint8_t> bytes,
    absl::FunctionRef<bool(const Http2Frame& frame)> is_barrier) const {
  Http2Scanner copy = *this;
  absl::Span<const uint8_t> rest = bytes;
  std::optional<Http2Frame> frame = copy.Next(&rest);
  while (frame.has_value() && !is_barrier(*frame)) frame = copy.Next(&rest);
  const size_t scanned = bytes.size() - rest.size();
  const size_t header = frame.has_value() ? kHeaderBytes : copy.header_size_;
  return scanned - std::min(scanned, header);
}

bool Http2Scanner::Scan(
    absl::Span<const uint8_t> bytes,
    absl::FunctionRef<bool(const Http2Frame& frame)> on_frame) {
  while (const std::optional<Http2Frame> frame = Next(&bytes)) {
    if (!on_frame(*frame)) return false;
  }
  return true;
}

}  // namespace datasetd
