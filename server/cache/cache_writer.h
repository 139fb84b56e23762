// Writes a resident dataset to a file of the cache directory.

#ifndef DATASETD_SERVER_CACHE_CACHE_WRITER_H_
#define DATASETD_SERVER_CACHE_CACHE_WRITER_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/cache/cache_entry.h"
#include "server/cache/copy_gate.h"
#include "server/dataset/dataset.h"
#include "server/files/store_directory.h"

namespace datasetd {

struct CacheWriteOptions {
  // Entered while the dataset is held: once CopyGate::Interrupt returns, the
  // memory of a released dataset is free.
  CopyGate* gate = nullptr;
  const std::atomic<bool>* is_stopping = nullptr;
};

// Writes the file `name` from `header`, computes the header's checksums, and
// syncs the file. Blocks. Holds one buffer of kCacheBlockBytes of `backend`,
// and the dataset for one block at a time, copied as background work. Removes
// the file on failure. REQUIRES: `layout` belongs to `header`, and `backend` to
// the dataset.
//   CANCELLED  the dataset was freed, or is_stopping was set
// Also errors of the device and the directory.
absl::Status WriteCacheEntry(CacheHeader header, const CacheLayout& layout,
                             const std::weak_ptr<const Dataset>& dataset,
                             Backend& backend, StoreDirectory& directory,
                             const std::string& name,
                             const CacheWriteOptions& options);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_CACHE_WRITER_H_
