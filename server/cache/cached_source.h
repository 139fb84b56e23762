// Reads the resident samples of a cache entry. Verifies every block: DATA_LOSS
// from Read means a damaged entry.

#ifndef DATASETD_SERVER_CACHE_CACHED_SOURCE_H_
#define DATASETD_SERVER_CACHE_CACHED_SOURCE_H_

#define XXH_STATIC_LINKING_ONLY  // for XXH3_state_t by value
#include <xxhash.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/cache/cache_entry.h"
#include "server/dataset/ragged_index.h"
#include "server/dataset/sample_source.h"

namespace datasetd {

class CachedSource : public SampleSource {
 public:
  // REQUIRES: `header` and `layout` belong to `file`.
  CachedSource(std::unique_ptr<RandomAccessFile> file, CacheHeader header,
               CacheLayout layout);
  ~CachedSource() override;

  // Lists no files: the original source is not accessed.
  const SourceInfo& info() const override { return info_; }
  const CacheHeader& header() const { return header_; }
  int64_t size_bytes() const { return layout_.file_bytes; }

  absl::StatusOr<RaggedIndex> ReadIndex(size_t field) override;
  // REQUIRES: `first` is the end of the last Read.
  absl::Status Read(int64_t first, int64_t count,
                    absl::Span<const absl::Span<uint8_t>> fields) override;

 private:
  struct Progress {
    int64_t num_bytes = 0;  // read so far
    XXH3_state_t block;     // current block
  };

  // Reads and verifies the next bytes of a place of the layout.
  absl::Status ReadNext(size_t place, absl::Span<uint8_t> data);
  absl::Status Check(size_t place, absl::Span<const uint8_t> data);

  const std::unique_ptr<RandomAccessFile> file_;
  const CacheHeader header_;
  const CacheLayout layout_;
  SourceInfo info_;
  int64_t position_ = 0;            // after the last Read
  std::vector<Progress> progress_;  // by place
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_CACHED_SOURCE_H_
