// The files of a source that is cut into shards. Immutable and thread-safe.
//
// Keeps the first 64 open; the others are opened for every read.

#ifndef DATASETD_SERVER_READERS_SHARD_FILES_H_
#define DATASETD_SERVER_READERS_SHARD_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/core/file_system.h"

namespace datasetd {

class ShardFiles {
 public:
  // The files that `pattern` names (brace_pattern.h). `files` outlives this.
  //   INVALID_ARGUMENT  the pattern; a directory, an empty file
  static absl::StatusOr<ShardFiles> Open(const FileSystem& files,
                                         const std::string& pattern,
                                         absl::string_view expected);

  const std::vector<FileInfo>& infos() const { return infos_; }

  // For a look at all of one.
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenOne(size_t shard) const;

  absl::Status ReadAt(size_t shard, int64_t offset,
                      absl::Span<uint8_t> buffer) const;

 private:
  const FileSystem* files_ = nullptr;
  std::vector<FileInfo> infos_;
  std::vector<std::unique_ptr<RandomAccessFile>> open_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_SHARD_FILES_H_
