// Files of a source that are read after it was scanned.

#ifndef DATASETD_SERVER_FILES_REOPENED_FILE_H_
#define DATASETD_SERVER_FILES_REOPENED_FILE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/files/file_system.h"

namespace datasetd {

// Whether `now`, the same file later, has the size and time of `info`.
//   FAILED_PRECONDITION  it was changed
absl::Status CheckUnchanged(const FileInfo& info, const FileInfo& now);

// Opens the file of `info`, which must be unchanged. Errors as CheckUnchanged,
// and of FileSystem::Open.
absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenUnchanged(
    const FileSystem& files, const FileInfo& info);

// A file that OpenUnchanged opens when it is first read, so that a source that
// waits for its turn holds no descriptor. Thread-safe. `files` outlives it.
std::unique_ptr<RandomAccessFile> OpenWhenRead(const FileSystem& files,
                                               FileInfo info);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_REOPENED_FILE_H_
