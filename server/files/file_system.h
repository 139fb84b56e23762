// The files that the daemon may read. Readers see the disk through this
// interface only, so that roots are enforced in one place and tests inject
// faults.
//
// Thread-safe, and so are the files it opens.

#ifndef DATASETD_SERVER_FILES_FILE_SYSTEM_H_
#define DATASETD_SERVER_FILES_FILE_SYSTEM_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/files/random_access_file.h"

namespace datasetd {

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Paths are absolute. Errors, all "as seen by the daemon":
  //   INVALID_ARGUMENT    not absolute, or not a regular file
  //   NOT_FOUND           no such file or directory
  //   PERMISSION_DENIED   outside the roots (symbolic links and .. included),
  //                       or the daemon's user may not read it
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path) const = 0;
  virtual absl::StatusOr<FileInfo> Stat(const std::string& path) const = 0;
  // Entries of a directory by full path, sorted by name; "." and ".." left
  // out. Links are followed; one that leads nowhere or out of the roots, and
  // what is neither file nor directory, is listed with size 0: to open it says
  // why it cannot be read. INVALID_ARGUMENT also if it is not a directory.
  virtual absl::StatusOr<std::vector<FileInfo>> List(
      const std::string& directory) const = 0;
};

// Opens below `roots` only (openat2, RESOLVE_BENEATH, on a descriptor of each
// root). A path belongs to the longest root that it begins with; links and ..
// may not leave that root, and absolute links always do. Without roots every
// path is PERMISSION_DENIED.
//   INVALID_ARGUMENT     a root is not absolute or holds ..
//   NOT_FOUND, ...       a root that is no directory, or cannot be opened
//   FAILED_PRECONDITION  the kernel has no openat2 (Linux 5.6)
absl::StatusOr<std::unique_ptr<FileSystem>> CreateRootedFileSystem(
    const std::vector<std::string>& roots);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_FILE_SYSTEM_H_
