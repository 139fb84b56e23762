// Decompresses a gzip file, of one or more members, or a zlib file. Not
// thread-safe. Uses 16 KiB and zlib's window, whatever the file declares.

#ifndef DATASETD_SERVER_READERS_GZIP_STREAM_H_
#define DATASETD_SERVER_READERS_GZIP_STREAM_H_

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/files/random_access_file.h"

namespace datasetd {

// Deflate's maximum: 258 bytes for two bits, without the block's header.
inline constexpr int64_t kMaxExpansion = 1032;

class GzipStream {
 public:
  // `file` outlives the stream.
  //   RESOURCE_EXHAUSTED  zlib got no memory
  static absl::StatusOr<std::unique_ptr<GzipStream>> Open(
      const RandomAccessFile* file);
  ~GzipStream() { inflateEnd(&zlib_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  // Fills `buffer` with the next bytes.
  //   DATA_LOSS  truncated or damaged; names file and offset
  absl::Status Read(absl::Span<uint8_t> buffer);

  // Reads up to buffer.size() of the next bytes, one at least. Returns 0 only
  // at the end, after the checksum was verified. DATA_LOSS as Read, except for
  // the end of the data.
  absl::StatusOr<size_t> ReadSome(absl::Span<uint8_t> buffer);

 private:
  explicit GzipStream(const RandomAccessFile* file);
  absl::Status FillInput();

  const RandomAccessFile& file_;
  std::vector<uint8_t> input_;
  z_stream zlib_ = {};
  bool is_member_done_ = false;
  int64_t input_offset_ = 0;   // position in the file after the bytes read
  int64_t output_offset_ = 0;  // decompressed
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_GZIP_STREAM_H_
