// A flat directory of the daemon's own files: its cache or its state.
//
// Files are created with mode 0600. Names have no '/'. Thread-safe, as are the
// files it opens for reading; a WritableFile is for one thread. Errors name the
// file and have the code for errno: a full disk is RESOURCE_EXHAUSTED.

#ifndef DATASETD_SERVER_FILES_STORE_DIRECTORY_H_
#define DATASETD_SERVER_FILES_STORE_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/files/mapped_file.h"
#include "server/files/random_access_file.h"

namespace datasetd {

class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Writes all of `data` or fails.
  virtual absl::Status WriteAt(int64_t offset,
                               absl::Span<const uint8_t> data) = 0;
  // Flushes to the disk.
  virtual absl::Status Sync() = 0;
};

class StoreDirectory {
 public:
  virtual ~StoreDirectory() = default;

  virtual const std::string& path() const = 0;
  // Lists regular files of the daemon's user; info.path is the bare name.
  virtual absl::StatusOr<std::vector<FileInfo>> List() const = 0;
  // NOT_FOUND; PERMISSION_DENIED if it is a link, not a regular file or another
  // user's.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& name) const = 0;
  // Replaces an existing file of that name.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& name) = 0;
  // Maps a whole file for reading. Errors as Open.
  virtual absl::StatusOr<std::unique_ptr<MappedFile>> Map(
      const std::string& name) const = 0;
  // As Create, a file of `size_bytes` zeros, mapped for reading and writing.
  // Its space on the disk is taken.
  virtual absl::StatusOr<std::unique_ptr<MappedFile>> CreateMapped(
      const std::string& name, int64_t size_bytes) = 0;
  // Atomic; durable on return.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& name) = 0;
  // Sets the modification time to now, to the nanosecond, so that files which
  // are touched in turn are in order.
  virtual absl::Status Touch(const std::string& name) = 0;
  // Free space on the disk for the daemon's user.
  virtual absl::StatusOr<int64_t> FreeBytes() const = 0;
};

// Opens `path` and locks it for the life of the object. Creates the directory
// if it does not exist; its parent must exist.
//   FAILED_PRECONDITION  another daemon has locked it
//   PERMISSION_DENIED    it belongs to another user, or is writable by others
absl::StatusOr<std::unique_ptr<StoreDirectory>> OpenStoreDirectory(
    const std::string& path);

// Reads a whole file. DATA_LOSS if it has more than `max_bytes`.
absl::StatusOr<std::string> ReadStored(const StoreDirectory& directory,
                                       const std::string& name,
                                       int64_t max_bytes);

// Replaces the file with `data`, atomically and durably.
absl::Status WriteStored(StoreDirectory& directory, const std::string& name,
                         absl::Span<const uint8_t> data);

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_STORE_DIRECTORY_H_
