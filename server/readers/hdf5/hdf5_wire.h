// The protocol between the daemon and datasetd-hdf5, over a stream socket.
//
// The HDF5 library runs in a separate process, datasetd-hdf5, so that a damaged
// file can crash that process but not the daemon. The worker opens no files: it
// asks the daemon for bytes, and so is limited by the daemon's file system
// rules.
//
//   daemon                      worker
//   kOpen  u64 file size, text  ->           the text is option fields
//                               <- kNeed u64 offset, u64 size
//                                            any number, in any request
//   kBytes the bytes            ->           or kNoBytes
//                               <- kInfo text
//                                            one line per field: name,
//                                            dtype, extents; with spaces
//   kRows  u64 field, first, count
//                               ->
//                               <- kData the rows
//                               <- kError u64 absl::StatusCode, text
//                                            instead of an answer
//
// Numbers are in native byte order. Neither side trusts the other's sizes.

#ifndef DATASETD_SERVER_READERS_HDF5_HDF5_WIRE_H_
#define DATASETD_SERVER_READERS_HDF5_HDF5_WIRE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace datasetd::hdf5 {

enum class Kind : uint64_t {
  kOpen = 1,
  kNeed = 2,
  kBytes = 3,
  kNoBytes = 4,
  kInfo = 5,
  kRows = 6,
  kData = 7,
  kError = 8,
};

struct Frame {
  Kind kind;
  uint64_t size_bytes;  // of the payload that follows
};

inline constexpr uint64_t kMaxTextBytes = 64 << 10;
// For kNeed.
inline constexpr uint64_t kMaxNeedBytes = 1 << 20;

// Returns UNAVAILABLE if the other end is gone, and DEADLINE_EXCEEDED if it
// sends nothing for `timeout_ms`; negative: no timeout.
absl::Status Send(int fd, Kind kind, absl::Span<const uint8_t> payload);
absl::Status Receive(int fd, int timeout_ms, absl::Span<uint8_t> buffer);
absl::StatusOr<Frame> ReceiveFrame(int fd, int timeout_ms);
// REQUIRES: size_bytes <= kMaxTextBytes.
absl::StatusOr<std::string> ReceiveText(int fd, int timeout_ms,
                                        uint64_t size_bytes);

template <typename T>
absl::Span<const uint8_t> BytesOf(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof(value)};
}

}  // namespace datasetd::hdf5

#endif  // DATASETD_SERVER_READERS_HDF5_HDF5_WIRE_H_
