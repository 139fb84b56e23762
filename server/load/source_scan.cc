#include "server/load/source_scan.h"

#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "server/dataset/load_cancelled.h"
#include "server/files/reopened_file.h"

namespace datasetd {
namespace {

// Active until the source is open.
struct Watch {
  std::shared_ptr<SourceScan> scan;
  std::atomic<bool> is_open = false;

  absl::Status Count(int64_t num_entries) {
    if (is_open.load(std::memory_order_relaxed)) return absl::OkStatus();
    scan->num_entries.fetch_add(num_entries, std::memory_order_relaxed);
    return CheckNotCancelled(scan->is_cancelled);
  }
};

class WatchedFile final : public RandomAccessFile {
 public:
  WatchedFile(std::unique_ptr<RandomAccessFile> file, Watch* watch)
      : file_(std::move(file)), watch_(*watch) {}

  const FileInfo& info() const override { return file_->info(); }

  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<uint8_t> buffer) const override {
    DATASETD_RETURN_IF_ERROR(watch_.Count(1));
    return file_->ReadAt(offset, buffer);
  }

 private:
  const std::unique_ptr<RandomAccessFile> file_;
  Watch& watch_;
};

class WatchedFiles final : public FileSystem {
 public:
  WatchedFiles(const FileSystem& files, Watch* watch)
      : files_(files), watch_(*watch) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path) const override {
    DATASETD_RETURN_IF_ERROR(watch_.Count(1));
    DATASETD_ASSIGN_OR_RETURN(auto file, files_.Open(path));
    return std::make_unique<WatchedFile>(std::move(file), &watch_);
  }

  absl::StatusOr<FileInfo> Stat(const std::string& path) const override {
    DATASETD_RETURN_IF_ERROR(watch_.Count(1));
    return files_.Stat(path);
  }

  absl::StatusOr<std::vector<FileInfo>> List(const std::string& directory,
                                             OnEntry on_entry) const override {
    DATASETD_RETURN_IF_ERROR(watch_.Count(0));
    return files_.List(directory, [&](const FileInfo& entry) -> absl::Status {
      DATASETD_RETURN_IF_ERROR(watch_.Count(1));
      return on_entry(entry);
    });
  }

 private:
  const FileSystem& files_;
  Watch& watch_;
};

// A source together with the file system that it reads through.
class ScannedSource final : public SampleSource {
 public:
  ScannedSource(const FileSystem& files, std::shared_ptr<SourceScan> scan)
      : watch_{.scan = std::move(scan)}, files_(files, &watch_) {}

  const FileSystem& files() const { return files_; }
  void Take(std::unique_ptr<SampleSource> source) {
    source_ = std::move(source);
    watch_.is_open.store(true, std::memory_order_relaxed);
    watch_.scan = nullptr;
  }

  const SourceInfo& info() const override { return source_->info(); }
  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override {
    return source_->Read(first, count, fields);
  }
  absl::Status CheckUnchanged() const override {
    for (const FileInfo& file : info().files) {
      if (file.is_checked_when_read) continue;
      DATASETD_ASSIGN_OR_RETURN(const FileInfo now, files_.Stat(file.path));
      DATASETD_RETURN_IF_ERROR(datasetd::CheckUnchanged(file, now));
    }
    return absl::OkStatus();
  }
  absl::Status Fetch(int64_t index, RawSample& raw) const override {
    return source_->Fetch(index, raw);
  }
  absl::Status Probe(int64_t index, const RawSample& raw,
                     SampleProbe& probe) const override {
    return source_->Probe(index, raw, probe);
  }
  absl::Status Decode(
      int64_t index, const RawSample& raw,
      absl::Span<const absl::Span<uint8_t>> fields) const override {
    return source_->Decode(index, raw, fields);
  }
  SampleLocation Locate(int64_t index) const override {
    return source_->Locate(index);
  }
  void AllowSmallerImages(ImageSize at_least) override {
    source_->AllowSmallerImages(at_least);
  }

 private:
  Watch watch_;
  const WatchedFiles files_;
  std::unique_ptr<SampleSource> source_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenScanned(
    const FileSystem& files, std::shared_ptr<SourceScan> scan,
    const std::function<absl::StatusOr<std::unique_ptr<SampleSource>>(
        const FileSystem& files)>& open) {
  const std::shared_ptr<const SourceScan> wish = scan;
  auto scanned = std::make_unique<ScannedSource>(files, std::move(scan));
  auto source = open(scanned->files());
  // Cancellation takes precedence over the reader's result.
  DATASETD_RETURN_IF_ERROR(CheckNotCancelled(wish->is_cancelled));
  if (!source.ok()) return source.status();
  scanned->Take(*std::move(source));
  return scanned;
}

}  // namespace datasetd
