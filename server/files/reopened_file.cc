#include "server/files/reopened_file.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

class ReopenedFile final : public RandomAccessFile {
 public:
  ReopenedFile(const FileSystem& files, FileInfo info)
      : files_(files), info_(std::move(info)) {}

  const FileInfo& info() const override { return info_; }

  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<uint8_t> buffer) const override {
    DATASETD_ASSIGN_OR_RETURN(const RandomAccessFile* const file, Opened());
    return file->ReadAt(offset, buffer);
  }

 private:
  absl::StatusOr<const RandomAccessFile*> Opened() const {
    MutexLock lock(&mutex_);
    if (file_ == nullptr) {
      DATASETD_ASSIGN_OR_RETURN(file_, OpenUnchanged(files_, info_));
    }
    return file_.get();
  }

  const FileSystem& files_;
  const FileInfo info_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<RandomAccessFile> file_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status CheckUnchanged(const FileInfo& info, const FileInfo& now) {
  if (now.size_bytes == info.size_bytes &&
      now.mtime_nanoseconds == info.mtime_nanoseconds) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(info.path,
                   ": was changed after the load began: load the dataset again "
                   "when its files are complete"));
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenUnchanged(
    const FileSystem& files, const FileInfo& info) {
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file,
                            files.Open(info.path));
  DATASETD_RETURN_IF_ERROR(CheckUnchanged(info, file->info()));
  return file;
}

std::unique_ptr<RandomAccessFile> OpenWhenRead(const FileSystem& files,
                                               FileInfo info) {
  return std::make_unique<ReopenedFile>(files, std::move(info));
}

}  // namespace datasetd
