// Copies a resident dataset into a file of the cache directory.

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
  // Passed while the dataset is held: after CopyGate::Interrupt the memory of a
  // dataset that was let go is free.
  CopyGate* gate = nullptr;
  const std::atomic<bool>* is_stopping = nullptr;
};

// Writes the file `name` from `header`, whose checksums it makes, and syncs it.
// Blocks; holds one buffer of kCacheBlockBytes of `backend`, and the dataset
// for one block at a time, which it copies as background work. Leaves no file
// behind when it fails.
//   CANCELLED  the dataset went, or is_stopping
//   and what device and directory say
// REQUIRES: `layout` is that of `header`, and `backend` the dataset's.
absl::Status WriteCacheEntry(CacheHeader header, const CacheLayout& layout,
                             const std::weak_ptr<const Dataset>& dataset,
                             Backend& backend, StoreDirectory& directory,
                             const std::string& name,
                             const CacheWriteOptions& options);

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_CACHE_WRITER_H_
