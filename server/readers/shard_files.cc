#include "server/readers/shard_files.h"

#include <utility>

#include "cuda/status_macros.h"
#include "server/readers/brace_pattern.h"
#include "server/readers/source_file.h"

namespace datasetd {
namespace {

constexpr size_t kMaxOpenFiles = 64;

}  // namespace

absl::StatusOr<ShardFiles> ShardFiles::Open(const FileSystem& files,
                                            const std::string& pattern,
                                            absl::string_view expected) {
  ShardFiles shards;
  shards.files_ = &files;
  DATASETD_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                            ExpandBraces(pattern));
  for (const std::string& path : paths) {
    DATASETD_ASSIGN_OR_RETURN(auto file, OpenSourceFile(files, path, expected));
    shards.infos_.push_back(file->info());
    if (shards.open_.size() < kMaxOpenFiles) {
      shards.open_.push_back(std::move(file));
    }
  }
  return shards;
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> ShardFiles::OpenOne(
    size_t shard) const {
  return files_->Open(infos_[shard].path);
}

absl::Status ShardFiles::ReadAt(size_t shard, int64_t offset,
                                absl::Span<uint8_t> buffer) const {
  if (shard < open_.size()) return ReadExactly(*open_[shard], offset, buffer);
  DATASETD_ASSIGN_OR_RETURN(const auto file, OpenOne(shard));
  return ReadExactly(*file, offset, buffer);
}

}  // namespace datasetd
