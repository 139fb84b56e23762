// One load, from the opened source to the dataset in device memory.
//
// Owns the source and its memory reservations; whatever is left of them is
// released on destruction. Not thread-safe: used on the loading thread.

#ifndef DATASETD_SERVER_LOAD_DATASET_LOAD_H_
#define DATASETD_SERVER_LOAD_DATASET_LOAD_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/cache/cached_source.h"
#include "server/cache/dataset_cache.h"
#include "server/dataset/dataset.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/memory_budget.h"
#include "server/load/dataset_sources.h"
#include "server/load/load_plan.h"
#include "server/load/placement.h"
#include "server/load/sample_loader.h"

namespace datasetd {

class DatasetLoad {
 public:
  // Reserves what the plan needs. Called if the sample sizes were unknown at
  // first and have been found.
  using Reserver =
      std::function<absl::StatusOr<PlacedMemory>(const LoadPlan& plan)>;

  // `resident` is the memory that the source's plan needs; without reservations
  // if that needs sizes. Decoding time is
  // charged to the account's user.
  DatasetLoad(OpenedSource source, PlacedMemory resident,
              const DecodeAccount& account)
      : source_(std::move(source)),
        account_(account),
        resident_(std::move(resident)) {}

  // Loads from the cache (null: no cache) if it has an undamaged copy, else
  // from the source. Blocks; updates `counters` while running. REQUIRES: called
  // once; a mapped dataset has a cache. Errors as LoadDataset, SampleScan
  // and `reserve`.
  absl::StatusOr<std::shared_ptr<const Dataset>> Run(DatasetCache* cache,
                                                     const Reserver& reserve,
                                                     LoadCounters& counters);

  // Reads the samples of a push as Run does, and returns the contents that the
  // dataset would have, without memory. Calls `check` with each plan after the
  // source's; its error ends the load. REQUIRES: called instead of Run. Errors
  // as HashSamples and SampleScan.
  absl::StatusOr<Dataset::Contents> Hash(
      const std::function<absl::Status(const LoadPlan& plan)>& check,
      LoadCounters& counters);

 private:
  bool IsMapped() const {
    return source_.placement.residency == v1::RESIDENCY_MAPPED;
  }
  bool IsPushed() const {
    return source_.request.spec->format() == kPushedFormat;
  }
  // Loads or maps the cached copy. Returns null if it is missing or damaged.
  absl::StatusOr<std::shared_ptr<const Dataset>> RunCached(
      DatasetCache& cache, const Reserver& reserve, LoadCounters& counters);
  absl::StatusOr<std::shared_ptr<const Dataset>> LoadEntry(
      CachedSource& entry, DatasetCache& cache, const Reserver& reserve,
      LoadCounters& counters);
  // Plans the load of a cached entry. DATA_LOSS if its fields are not those of
  // this source, or its samples are more.
  absl::StatusOr<LoadPlan> PlanEntry(const CachedSource& entry) const;
  // Waits for samples that are still to come, and plans their load.
  absl::Status Receive(const Reserver& reserve);
  // Finds the sizes of the samples and reserves memory for them.
  absl::Status FindSizes(const Reserver& reserve, LoadCounters& counters);
  absl::Status TakeMemory(const LoadPlan& plan, const Reserver& reserve);

  OpenedSource source_;
  const DecodeAccount account_;
  PlacedMemory resident_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_DATASET_LOAD_H_
