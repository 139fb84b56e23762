// The daemon's own files: one flat directory of the cache or of its state.
//
// Files are made 0600. Names have no '/'. Thread-safe, and so are the files it
// opens; a file being written is for one thread at a time. Errors name the file
// and carry the code of errno: a full disk is RESOURCE_EXHAUSTED.

#ifndef DATASETD_SERVER_FILES_STORE_DIRECTORY_H_
#define DATASETD_SERVER_FILES_STORE_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/files/random_access_file.h"

namespace datasetd {

class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // All of `data`, or an error.
  virtual absl::Status WriteAt(int64_t offset,
                               absl::Span<const uint8_t> data) = 0;
  // To the disk itself.
  virtual absl::Status Sync() = 0;
};

class StoreDirectory {
 public:
  virtual ~StoreDirectory() = default;

  virtual const std::string& path() const = 0;
  // Regular files of the daemon's user; info.path is the name alone.
  virtual absl::StatusOr<std::vector<FileInfo>> List() const = 0;
  // NOT_FOUND; PERMISSION_DENIED if it is a link, no regular file or another
  // user's.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& name) const = 0;
  // In the place of a file of that name, if there is one.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& name) = 0;
  // Atomic, and on the disk when it returns.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& name) = 0;
  // Sets the time of its last change to now.
  virtual absl::Status Touch(const std::string& name) = 0;
  // Of the disk, for the daemon's user.
  virtual absl::StatusOr<int64_t> FreeBytes() const = 0;
};

// Opens `path`, made if it is not there (its parent must be), and locks it for
// as long as the object lives.
//   FAILED_PRECONDITION  another daemon has it
//   PERMISSION_DENIED    it is another user's, or writable by others
absl::StatusOr<std::unique_ptr<StoreDirectory>> OpenStoreDirectory(
    const std::string& path);

// All of a file. RESOURCE_EXHAUSTED if it has more than `max_bytes`.
absl::StatusOr<std::string> ReadStored(const StoreDirectory& directory,
                                       const std::string& name,
                                       int64_t max_bytes);

// Puts `data` in the place of the file, atomically and on the disk.
absl::Status WriteStored(StoreDirectory& directory, const std::string& name,
                         absl::Span<const uint8_t> data);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_STORE_DIRECTORY_H_
