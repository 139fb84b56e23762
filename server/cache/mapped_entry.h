// The samples of a cached dataset, mapped into memory.
//
// Made by DatasetCache, which keeps the entry until the object is destroyed,
// and removes it then if its file was cut. Thread-safe. REQUIRES for
// destruction: the cache still exists.

#ifndef DATASETD_SERVER_CACHE_MAPPED_ENTRY_H_
#define DATASETD_SERVER_CACHE_MAPPED_ENTRY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "server/cache/cache_entry.h"
#include "server/files/mapped_file.h"

namespace datasetd {

class MappedEntry {
 public:
  // Called with the file when the entry is no longer used.
  using Release = std::function<void(const MappedFile&)>;

  // REQUIRES: `layout` is that of the file.
  MappedEntry(std::unique_ptr<MappedFile> file, CacheLayout layout,
              Release release)
      : file_(std::move(file)),
        layout_(std::move(layout)),
        release_(std::move(release)) {}
  ~MappedEntry() { release_(*file_); }
  MappedEntry(const MappedEntry&) = delete;
  MappedEntry& operator=(const MappedEntry&) = delete;

  const MappedFile& file() const { return *file_; }
  const CacheLayout& layout() const { return layout_; }
  // The bytes of one of the layout's places. Read-only once the entry is in the
  // cache.
  absl::Span<uint8_t> place(size_t place) const {
    return {file_->data() + layout_.places[place].offset_bytes,
            static_cast<size_t>(layout_.places[place].size_bytes)};
  }

 private:
  const std::unique_ptr<MappedFile> file_;
  const CacheLayout layout_;
  const Release release_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_MAPPED_ENTRY_H_
