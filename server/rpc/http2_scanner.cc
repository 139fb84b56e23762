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

size_t Http2Scanner::BytesBefore(
    absl::Span<const uint8_t> bytes,
    absl::FunctionRef<bool(const Http2Frame& frame)> is_barrier) const {
  Http2Scanner copy = *this;
  size_t num_before = 0;
  while (num_before < bytes.size()) {
    const absl::Span<const uint8_t> rest = bytes.subspan(num_before);
    if (copy.skip_ > 0) {
      const size_t skipped = std::min(copy.skip_, rest.size());
      copy.skip_ -= skipped;
      num_before += skipped;
      continue;
    }
    const size_t taken = kHeaderBytes - copy.header_size_;
    if (rest.size() < taken) break;
    std::copy_n(rest.begin(), taken, copy.header_.begin() + copy.header_size_);
    copy.header_size_ = 0;
    const Http2Frame frame = copy.ParseHeader();
    if (is_barrier(frame)) break;
    copy.skip_ = frame.size_bytes;
    num_before += taken;
  }
  return num_before;
}

bool Http2Scanner::Scan(
    absl::Span<const uint8_t> bytes,
    absl::FunctionRef<bool(const Http2Frame& frame)> on_frame) {
  while (!bytes.empty()) {
    const size_t skipped = std::min(skip_, bytes.size());
    skip_ -= skipped;
    bytes.remove_prefix(skipped);
    const size_t taken = std::min(kHeaderBytes - header_size_, bytes.size());
    std::copy_n(bytes.begin(), taken, header_.begin() + header_size_);
    header_size_ += taken;
    bytes.remove_prefix(taken);
    if (header_size_ < kHeaderBytes) continue;
    header_size_ = 0;
    const Http2Frame frame = ParseHeader();
    skip_ = frame.size_bytes;
    if (!on_frame(frame)) return false;
  }
  return true;
}

}  // namespace datasetd
