// Temporary memory for data of unknown size, on the disk where there is one.
//
// A spool has no name: nothing of it is left when the process ends, however it
// ends. All spools of a SpoolSpace share its limit, and those of one user half
// of it.

#ifndef DATASETD_SERVER_FILES_SPOOL_H_
#define DATASETD_SERVER_FILES_SPOOL_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"

namespace datasetd {

class Spool;

// Thread-safe. Outlives its spools.
class SpoolSpace {
 public:
  // Spools are unlinked files in `directory` or, if it is empty, host memory.
  // `key` is the configuration key of the limit, for messages.
  SpoolSpace(std::string directory, int64_t limit_bytes, std::string key)
      : directory_(std::move(directory)),
        limit_bytes_(limit_bytes),
        key_(std::move(key)) {}

  // An empty spool of a user's, who may have all of the space, or half. Errors
  // have the code for errno.
  absl::StatusOr<std::unique_ptr<Spool>> Open(uid_t uid, bool may_have_all);

  int64_t used_bytes() const;

 private:
  friend class Spool;

  // RESOURCE_EXHAUSTED if it does not fit.
  absl::Status Take(uid_t uid, bool may_have_all, int64_t size_bytes);
  void Give(uid_t uid, int64_t size_bytes);

  const std::string directory_;
  const int64_t limit_bytes_;
  const std::string key_;
  mutable Mutex mutex_;
  int64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uid_t, int64_t> used_by_user_ ABSL_GUARDED_BY(mutex_);
};

// Gives its space back on destruction.
class Spool {
 public:
  // Made by SpoolSpace::Open.
  Spool(SpoolSpace* space, FileDescriptor fd, uid_t uid, bool may_have_all)
      : space_(*space),
        fd_(std::move(fd)),
        uid_(uid),
        may_have_all_(may_have_all) {}
  ~Spool();
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // Not thread-safe.
  //   RESOURCE_EXHAUSTED  the space's limit, which it names, or a full disk
  absl::Status Append(absl::Span<const uint8_t> data);

  int64_t size_bytes() const { return size_bytes_; }

  // Reads exactly `buffer.size()` bytes at `offset`. Thread-safe when all is
  // appended. REQUIRES: they have been appended.
  //   INTERNAL  the disk failed
  absl::Status ReadAt(int64_t offset, absl::Span<uint8_t> buffer) const;

 private:
  SpoolSpace& space_;
  FileDescriptor fd_;
  const uid_t uid_;
  const bool may_have_all_;
  int64_t size_bytes_ = 0;
  int64_t taken_bytes_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FILES_SPOOL_H_
