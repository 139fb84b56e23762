// A file on disk, open for reading.

#ifndef DATASETD_SERVER_FILES_POSIX_FILE_H_
#define DATASETD_SERVER_FILES_POSIX_FILE_H_

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "server/files/random_access_file.h"

namespace datasetd {

// The size is 0 if it is not a regular file.
FileInfo FileInfoOf(std::string path, const struct stat& status);

// Thread-safe.
class PosixFile : public RandomAccessFile {
 public:
  // `info` has the name used in errors.
  PosixFile(FileDescriptor fd, FileInfo info);

  const FileInfo& info() const override { return info_; }
  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<uint8_t> buffer) const override;

 private:
  const FileDescriptor fd_;
  const FileInfo info_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_POSIX_FILE_H_
