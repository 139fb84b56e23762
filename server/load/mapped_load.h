// Loads of datasets with residency "mapped": their samples are in a file of the
// cache, mapped into memory.

#ifndef DATASETD_SERVER_LOAD_MAPPED_LOAD_H_
#define DATASETD_SERVER_LOAD_MAPPED_LOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/cache/cached_source.h"
#include "server/cache/dataset_cache.h"
#include "server/dataset/dataset.h"
#include "server/dataset/memory_budget.h"
#include "server/load/load_plan.h"
#include "server/load/placement.h"
#include "server/load/sample_loader.h"

namespace datasetd {

// Writes the samples to a new entry of the cache.
class MappedStore final : public SampleStore {
 public:
  // For the load of `plan`. `name` is the dataset's. `header` is as of
  // DatasetCache::Store; an empty spec id stands for a push, whose id follows
  // from its content.
  MappedStore(DatasetCache* cache, const LoadPlan& plan, int64_t num_samples,
              std::string name, CacheHeader header,
              const LoadCounters* counters);

  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(
      size_t field, int64_t size_bytes) override;
  // DATA_LOSS once the file was cut or its disk failed.
  absl::Status status() const override;
  absl::Status Finish(Dataset::Contents& contents) override;

 private:
  DatasetCache* const cache_;
  const std::string name_;
  const LoadCounters* const counters_;
  CacheHeader header_;
  std::shared_ptr<const MappedEntry> entry_;
};

// The dataset of an entry that is in the cache, every block of which is checked
// first. The packed fields' indices go to memory of the backend. Takes the
// reservations on success. Blocks; updates `counters`.
//   NOT_FOUND  it is not there any more
//   DATA_LOSS  it is damaged
//   CANCELLED  counters.Cancel was called
absl::StatusOr<std::shared_ptr<const Dataset>> MapDataset(
    const std::string& name, CachedSource& source, DatasetCache& cache,
    Backend* backend, PlacedMemory&& memory, LoadCounters& counters);

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_MAPPED_LOAD_H_
