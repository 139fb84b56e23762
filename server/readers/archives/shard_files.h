// The files of a source that is cut into shards. Thread-safe.
//
// Compressed ones look as if they were not (inflated_file.h). Each may inflate
// to what option max_inflated_bytes says; by default to 100 times its size, or
// 64 MiB where that is more; and to spec.max_inflated_bytes at most. Keeps open
// the first 64 plain ones, and of the compressed the four used last; others are
// opened for every read.

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
#include "server/readers/reader.h"

namespace datasetd {

class ShardFiles {
 public:
  // Whether a file that begins so is compressed. Up to kHeadBytes.
  using IsCompressed = bool (*)(absl::Span<const uint8_t> head);
  static constexpr size_t kHeadBytes = 512;
  // The option that Open reads.
  static constexpr absl::string_view kOptionName = "max_inflated_bytes";

  // The files that spec.path names (brace_pattern.h). `files` outlives this.
  //   INVALID_ARGUMENT  the pattern or the option; a directory, an empty file
  static absl::StatusOr<ShardFiles> Open(const FileSystem& files,
                                         const SourceSpec& spec,
                                         absl::string_view expected,
                                         IsCompressed is_compressed);

  const std::vector<FileInfo>& infos() const { return infos_; }

  // For a look at all of one. Of a compressed one the first look inflates it
  // all, to know its size.
  //   INVALID_ARGUMENT  it inflates to more than it may
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> OpenOne(
      size_t shard) const;

  absl::Status ReadAt(size_t shard, int64_t offset,
                      absl::Span<uint8_t> buffer) const;

 private:
  struct Inflated {
    Mutex mutex;
    // Of each shard; -1: not known.
    std::vector<int64_t> size_bytes ABSL_GUARDED_BY(mutex);
    // Used last, first.
    std::list<std::pair<size_t, std::shared_ptr<const RandomAccessFile>>> open
        ABSL_GUARDED_BY(mutex);
  };

  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> OpenInflated(
      size_t shard) const;

  const FileSystem* files_ = nullptr;
  int64_t max_inflated_bytes_ = 0;  // of each; 0: by its size
  int64_t configured_bytes_ = 0;    // and never more
  std::vector<FileInfo> infos_;
  std::vector<bool> is_compressed_;
  // Of the first shards; null where they are compressed.
  std::vector<std::shared_ptr<const RandomAccessFile>> open_;
  std::unique_ptr<Inflated> inflated_ = std::make_unique<Inflated>();
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_ARCHIVES_SHARD_FILES_H_
