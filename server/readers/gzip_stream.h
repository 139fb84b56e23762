// Decompresses a gzip file, of one or more members, or a zlib file. Not
// thread-safe. Uses 16 KiB and zlib's window, whatever the file declares.

#ifndef DATASETD_SERVER_READERS_GZIP_STREAM_H_
#define DATASETD_SERVER_READERS_GZIP_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/files/random_access_file.h"

namespace datasetd {

// Deflate's maximum: 258 bytes for two bits, without the block's header.
inline constexpr int64_t kMaxExpansion = 1032;

class GzipStream {
 public:
  virtual ~GzipStream() = default;

  // Fills `buffer` with the next bytes.
  //   DATA_LOSS  truncated or damaged; names file and offset
  virtual absl::Status Read(absl::Span<uint8_t> buffer) = 0;

  // Reads up to buffer.size() of the next bytes. Returns 0 only at the end,
  // after the checksum was verified. DATA_LOSS as Read, except for the end of
  // the data.
  virtual absl::StatusOr<size_t> ReadSome(absl::Span<uint8_t> buffer) = 0;
};

// `file` outlives the stream.
//   RESOURCE_EXHAUSTED  zlib got no memory
absl::StatusOr<std::unique_ptr<GzipStream>> OpenGzipStream(
    const RandomAccessFile* file);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_GZIP_STREAM_H_
