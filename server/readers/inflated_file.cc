#include "server/readers/inflated_file.h"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "server/readers/gzip_stream.h"

namespace datasetd {
namespace {

constexpr size_t kSkipBytes = 16 << 10;

FileInfo WithSize(FileInfo info, int64_t size_bytes) {
  info.size_bytes = size_bytes;
  return info;
}

class InflatedFile final : public RandomAccessFile {
 public:
  InflatedFile(std::unique_ptr<RandomAccessFile> file, int64_t size_bytes)
      : file_(std::move(file)), info_(WithSize(file_->info(), size_bytes)) {}

  const FileInfo& info() const override { return info_; }

  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<uint8_t> buffer) const override {
    const int64_t count = std::clamp<int64_t>(
        info_.size_bytes - offset, 0, static_cast<int64_t>(buffer.size()));
    if (count == 0) return 0;
    DATASETD_ASSIGN_OR_RETURN(Cursor cursor, Take(offset));
    uint8_t skipped[kSkipBytes];
    while (cursor.position < offset) {
      const auto step = static_cast<size_t>(
          std::min<int64_t>(kSkipBytes, offset - cursor.position));
      DATASETD_RETURN_IF_ERROR(
          cursor.stream->Read(absl::MakeSpan(skipped, step)));
      cursor.position += static_cast<int64_t>(step);
    }
    DATASETD_RETURN_IF_ERROR(
        cursor.stream->Read(buffer.first(static_cast<size_t>(count))));
    cursor.position += count;
    Give(std::move(cursor));
    return count;
  }

 private:
  struct Cursor {
    std::unique_ptr<GzipStream> stream;
    int64_t position = 0;
  };

  // Takes the free cursor that is the least behind `offset`, or a new one.
  // There is a cursor for each thread, and a thread's reads go forward, so one
  // of them is behind.
  absl::StatusOr<Cursor> Take(int64_t offset) const {
    {
      MutexLock lock(&mutex_);
      const auto end =
          std::partition(free_.begin(), free_.end(),
                         [&](const Cursor& c) { return c.position <= offset; });
      const auto best = std::max_element(free_.begin(), end,
                                         [](const Cursor& a, const Cursor& b) {
                                           return a.position < b.position;
                                         });
      if (best != end) {
        Cursor cursor = std::move(*best);
        free_.erase(best);
        return cursor;
      }
    }
    Cursor cursor;
    DATASETD_ASSIGN_OR_RETURN(cursor.stream, GzipStream::Open(file_.get()));
    return cursor;
  }

  void Give(Cursor cursor) const {
    MutexLock lock(&mutex_);
    free_.push_back(std::move(cursor));
    if (free_.size() <= max_free_) return;
    // The cursor furthest ahead is the least useful: a new one would get there
    // as well.
    free_.erase(std::max_element(free_.begin(), free_.end(),
                                 [](const Cursor& a, const Cursor& b) {
                                   return a.position < b.position;
                                 }));
  }

  const std::unique_ptr<RandomAccessFile> file_;
  const FileInfo info_;
  const size_t max_free_ = std::max(1u, std::thread::hardware_concurrency());
  mutable Mutex mutex_;
  mutable std::vector<Cursor> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<int64_t> InflatedBytes(const RandomAccessFile& file,
                                      int64_t max_bytes) {
  DATASETD_ASSIGN_OR_RETURN(const auto stream, GzipStream::Open(&file));
  int64_t total = 0;
  uint8_t bytes[kSkipBytes];
  while (true) {
    DATASETD_ASSIGN_OR_RETURN(const size_t count,
                              stream->ReadSome(absl::MakeSpan(bytes)));
    if (count == 0) return total;
    if (static_cast<int64_t>(count) > max_bytes - total) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.info().path, ": its ", file.info().size_bytes,
                       " bytes inflate to more than ", max_bytes));
    }
    total += static_cast<int64_t>(count);
  }
}

std::shared_ptr<const RandomAccessFile> OpenInflatedFile(
    std::unique_ptr<RandomAccessFile> file, int64_t size_bytes) {
  return std::make_shared<InflatedFile>(std::move(file), size_bytes);
}

}  // namespace datasetd
