// The interface of a readable file.

#ifndef DATASETD_SERVER_FILES_RANDOM_ACCESS_FILE_H_
#define DATASETD_SERVER_FILES_RANDOM_ACCESS_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace datasetd {

struct FileInfo {
  std::string path;  // absolute
  int64_t size_bytes = 0;
  int64_t mtime_nanoseconds = 0;
  bool is_directory = false;
  // It is read as a whole, right after it was found unchanged.
  bool is_checked_when_read = false;
};

class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  virtual const FileInfo& info() const = 0;
  // Reads up to `buffer.size()` bytes at `offset`; fewer only at the end of the
  // file.
  // Errors name path and offset:
  //   DATA_LOSS           the file is damaged
  //   UNAVAILABLE         the disk or a file server failed
  //   RESOURCE_EXHAUSTED  the system lacks memory
  virtual absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                         absl::Span<uint8_t> buffer) const = 0;
};

// Reads exactly `buffer.size()` bytes; of a file that ends before, DATA_LOSS
// with path, offset, requested and available bytes.
absl::Status ReadExactly(const RandomAccessFile& file, int64_t offset,
                         absl::Span<uint8_t> buffer);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_RANDOM_ACCESS_FILE_H_
