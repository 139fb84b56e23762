#include "server/readers/shard_files.h"

#include <utility>

#include "cuda/status_macros.h"
#include "server/readers/brace_pattern.h"
#include "server/readers/inflated_file.h"
#include "server/readers/source_file.h"

namespace datasetd {
namespace {

constexpr size_t kMaxOpenFiles = 64;
// As many as are read from at once, but for tiny ones.
constexpr size_t kMaxInflatedFiles = 4;

}  // namespace

absl::StatusOr<ShardFiles> ShardFiles::Open(const FileSystem& files,
                                            const std::string& pattern,
                                            absl::string_view expected,
                                            IsCompressed is_compressed) {
  ShardFiles shards;
  shards.files_ = &files;
  DATASETD_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                            ExpandBraces(pattern));
  for (const std::string& path : paths) {
    DATASETD_ASSIGN_OR_RETURN(auto file, OpenSourceFile(files, path, expected));
    shards.infos_.push_back(file->info());
    uint8_t head[kHeadBytes];
    DATASETD_ASSIGN_OR_RETURN(const int64_t size,
                              file->ReadAt(0, absl::MakeSpan(head)));
    shards.is_compressed_.push_back(
        is_compressed({head, static_cast<size_t>(size)}));
    if (shards.open_.size() < kMaxOpenFiles) {
      shards.open_.push_back(
          shards.is_compressed_.back() ? nullptr : std::move(file));
    }
  }
  MutexLock lock(&shards.inflated_->mutex);
  shards.inflated_->size_bytes.resize(paths.size(), -1);
  return shards;
}

absl::StatusOr<std::shared_ptr<const RandomAccessFile>> ShardFiles::OpenOne(
    size_t shard) const {
  if (is_compressed_[shard]) return OpenInflated(shard);
  if (shard < open_.size()) return open_[shard];
  return files_->Open(infos_[shard].path);
}

absl::StatusOr<std::shared_ptr<const RandomAccessFile>>
ShardFiles::OpenInflated(size_t shard) const {
  // Held while one is inflated for its size: by the look at all, alone.
  MutexLock lock(&inflated_->mutex);
  auto& open = inflated_->open;
  for (auto it = open.begin(); it != open.end(); ++it) {
    if (it->first != shard) continue;
    open.splice(open.begin(), open, it);
    return it->second;
  }
  DATASETD_ASSIGN_OR_RETURN(auto file, files_->Open(infos_[shard].path));
  int64_t& size_bytes = inflated_->size_bytes[shard];
  if (size_bytes < 0) {
    DATASETD_ASSIGN_OR_RETURN(size_bytes, InflatedBytes(*file));
  }
  open.emplace_front(shard, OpenInflatedFile(std::move(file), size_bytes));
  if (open.size() > kMaxInflatedFiles) open.pop_back();
  return open.front().second;
}

absl::Status ShardFiles::ReadAt(size_t shard, int64_t offset,
                                absl::Span<uint8_t> buffer) const {
  DATASETD_ASSIGN_OR_RETURN(const auto file, OpenOne(shard));
  return ReadExactly(*file, offset, buffer);
}

}  // namespace datasetd
