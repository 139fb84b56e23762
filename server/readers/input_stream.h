// A sequential stream of a file's bytes; decompresses gzip files. Not
// thread-safe. Uses 16 KiB and zlib's window, whatever the file declares.

#ifndef DATASETD_SERVER_READERS_INPUT_STREAM_H_
#define DATASETD_SERVER_READERS_INPUT_STREAM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/files/random_access_file.h"

namespace datasetd {

class InputStream {
 public:
  virtual ~InputStream() = default;

  virtual const FileInfo& info() const = 0;

  // Fills `buffer` with the next bytes.
  //   DATA_LOSS  truncated or damaged; names file and offset
  virtual absl::Status Read(absl::Span<uint8_t> buffer) = 0;

  // Checks that the file can hold `expected_bytes` in total: exactly, or, if it
  // is compressed, within what its size can decompress to.
  //   DATA_LOSS  it cannot
  virtual absl::Status CheckTotalBytes(int64_t expected_bytes) const = 0;

  // Checks that everything was read, and gzip's checksum.
  //   DATA_LOSS  bytes are left, or damaged
  virtual absl::Status ExpectEnd() = 0;
};

// Detects gzip by its first two bytes, not by the file name.
absl::StatusOr<std::unique_ptr<InputStream>> OpenInputStream(
    std::unique_ptr<RandomAccessFile> file);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_INPUT_STREAM_H_
