#include "tests/server/readers/memory_file_system.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd::testing {

class MemoryFileSystem::File : public RandomAccessFile {
 public:
  File(const MemoryFileSystem* files, FileInfo info)
      : files_(files), info_(std::move(info)), num_open_(files->num_open_) {
    ++*num_open_;
  }
  ~File() override { --*num_open_; }

  const FileInfo& info() const override { return info_; }

  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<uint8_t> buffer) const override {
    if (files_->reads_left_ == 0) {
      files_->has_failed_ = true;
      return absl::UnavailableError(
          absl::StrCat(info_.path, ": injected fault at offset ", offset));
    }
    if (files_->reads_left_ > 0) --files_->reads_left_;
    const std::string& content = files_->contents_.at(info_.path);
    const int64_t size = files_->SizeOf(info_.path);
    const int64_t count = std::clamp<int64_t>(size - offset, 0, buffer.size());
    const int64_t stored = static_cast<int64_t>(content.size());
    const int64_t begin = std::min(offset, stored);
    const int64_t copied = std::min(count, stored - begin);
    // Not copy_n, which converts byte after byte.
    if (copied > 0) std::memcpy(buffer.data(), &content[begin], copied);
    std::fill_n(buffer.begin() + copied, count - copied, 0);
    *files_->num_read_bytes_ += count;
    return count;
  }

 private:
  const MemoryFileSystem* const files_;
  const FileInfo info_;
  const std::shared_ptr<std::atomic<int>> num_open_;
};

int64_t MemoryFileSystem::SizeOf(const std::string& path) const {
  const auto sparse = sparse_bytes_.find(path);
  if (sparse != sparse_bytes_.end()) return sparse->second;
  return static_cast<int64_t>(contents_.at(path).size());
}

int64_t MemoryFileSystem::total_bytes() const {
  int64_t total = 0;
  for (const auto& [path, content] : contents_) total += content.size();
  return total;
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> MemoryFileSystem::Open(
    const std::string& path) const {
  DATASETD_ASSIGN_OR_RETURN(FileInfo info, Stat(path));
  if (info.is_directory) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a directory, expected a regular file"));
  }
  return std::make_unique<File>(this, std::move(info));
}

absl::StatusOr<FileInfo> MemoryFileSystem::Stat(const std::string& path) const {
  FileInfo info;
  info.path = path;
  const auto content = contents_.find(path);
  if (content != contents_.end()) {
    info.size_bytes = SizeOf(path);
    info.mtime_nanoseconds = times_.at(path);
    return info;
  }
  const std::string prefix = absl::StrCat(path, "/");
  const auto below = contents_.lower_bound(prefix);
  if (below == contents_.end() || !absl::StartsWith(below->first, prefix)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no such file or directory"));
  }
  info.is_directory = true;
  return info;
}

absl::StatusOr<std::vector<FileInfo>> MemoryFileSystem::List(
    const std::string& directory, OnEntry on_entry) const {
  std::vector<FileInfo> entries;
  const std::string prefix = absl::StrCat(directory, "/");
  for (const auto& [path, content] : contents_) {
    if (!absl::StartsWith(path, prefix)) continue;
    const std::string entry = path.substr(0, path.find('/', prefix.size()));
    if (!entries.empty() && entries.back().path == entry) continue;
    DATASETD_ASSIGN_OR_RETURN(FileInfo info, Stat(entry));
    DATASETD_RETURN_IF_ERROR(on_entry(info));
    entries.push_back(std::move(info));
  }
  if (entries.empty()) {
    return absl::NotFoundError(absl::StrCat(directory, ": no such directory"));
  }
  return entries;
}

}  // namespace datasetd::testing
