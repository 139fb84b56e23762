// The files of a sharded source. Thread-safe.
//
// Compressed shards are inflated transparently (inflated_file.h). Each may
// inflate to at most the option max_inflated_bytes (default: the larger of 100
// times its size and 64 MiB), and never more than the context allows.
// Keeps the first 64 plain shards and the last four used compressed ones open
// once they were read; others are opened for every read.

#ifndef DATASETD_SERVER_READERS_ARCHIVES_SHARD_FILES_H_
#define DATASETD_SERVER_READERS_ARCHIVES_SHARD_FILES_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "server/files/file_system.h"
#include "server/readers/list_memory.h"
#include "server/readers/reader.h"

namespace datasetd {

class ShardFiles {
 public:
  // The option that Open reads.
  static constexpr absl::string_view kOptionName = "max_inflated_bytes";

  // Opens the tar files that spec.path() names (brace_pattern.h).
  // Their list is charged to DecodeAccount::lists, twice, for who copies it.
  //   INVALID_ARGUMENT    a bad pattern or option; a directory, an empty file
  //   RESOURCE_EXHAUSTED  as ListMemory
  static absl::StatusOr<ShardFiles> Open(const v1::DatasetSpec& spec,
                                         const ReaderContext& context);

  const std::vector<FileInfo>& infos() const { return infos_; }

  // Opens one shard; a compressed one is inflated fully on first open, to find
  // its size.
  //   INVALID_ARGUMENT     it inflates to more than the limit
  //   FAILED_PRECONDITION  it was changed since Open
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> OpenOne(
      size_t shard) const;

  // Until they are read again. REQUIRES: no other call is in progress.
  void CloseAll();

  absl::Status ReadAt(size_t shard, int64_t offset,
                      absl::Span<uint8_t> buffer) const;

 private:
  struct Inflated {
    Mutex mutex;
    // Inflated size of each shard; -1: unknown.
    std::vector<int64_t> size_bytes ABSL_GUARDED_BY(mutex);
    // Most recently used first.
    std::list<std::pair<size_t, std::shared_ptr<const RandomAccessFile>>> open
        ABSL_GUARDED_BY(mutex);
  };

  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> OpenInflated(
      size_t shard) const;

  const FileSystem* files_ = nullptr;
  std::unique_ptr<ListMemory> memory_;
  int64_t max_inflated_bytes_ = 0;  // limit for each; 0: derived from its size
  int64_t configured_bytes_ = 0;    // upper bound of any limit
  std::vector<FileInfo> infos_;
  std::vector<bool> is_compressed_;
  // The first shards, opened when they are read; null for compressed ones.
  std::vector<std::shared_ptr<const RandomAccessFile>> open_;
  std::unique_ptr<Inflated> inflated_ = std::make_unique<Inflated>();
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_SHARD_FILES_H_
