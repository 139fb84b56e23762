// Access to the files that the daemon may read. Readers use this interface
// only, so that data roots are enforced in one place and tests can inject
// faults.
//
// Thread-safe, as are the files it opens.

#ifndef DATASETD_SERVER_FILES_FILE_SYSTEM_H_
#define DATASETD_SERVER_FILES_FILE_SYSTEM_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/files/random_access_file.h"

namespace datasetd {

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Paths are absolute. Errors, all "as seen by the daemon":
  //   INVALID_ARGUMENT   not absolute, or not a regular file
  //   NOT_FOUND          no such file or directory
  //   PERMISSION_DENIED  outside the roots (also by symbolic links or ..), or
  //                      not readable by the daemon's user
  //   UNAVAILABLE, RESOURCE_EXHAUSTED
  //                      of the system: the same path may be usable later
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path) const = 0;
  virtual absl::StatusOr<FileInfo> Stat(const std::string& path) const = 0;
  // Called with each entry before a list has it. An error ends the listing, and
  // is returned.
  using OnEntry = absl::FunctionRef<absl::Status(const FileInfo& entry)>;
  // Lists a directory by full path, sorted by name, without "." and "..". Links
  // are followed. A link that is dangling or leaves the roots, and anything
  // that is neither file nor directory, is listed with size 0; opening it
  // returns the reason. INVALID_ARGUMENT also if it is not a directory.
  virtual absl::StatusOr<std::vector<FileInfo>> List(
      const std::string& directory, OnEntry on_entry) const = 0;
};

// True for the errors of FileSystem that tell something of the path.
inline bool IsOfPath(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         absl::IsPermissionDenied(status);
}

// Opens files below `roots` only (openat2 with RESOLVE_BENEATH on a descriptor
// of each root). A path belongs to the longest root that is its prefix; links
// and .. must not leave that root, and absolute links do, unless it is "/".
// Without roots every path is PERMISSION_DENIED.
//   INVALID_ARGUMENT     a root is not absolute or contains ..
//   NOT_FOUND, ...       a root is not a directory, or cannot be opened
//   FAILED_PRECONDITION  the kernel lacks openat2 (Linux 5.6)
absl::StatusOr<std::unique_ptr<FileSystem>> CreateRootedFileSystem(
    const std::vector<std::string>& roots);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_FILE_SYSTEM_H_
