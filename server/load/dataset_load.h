// One load, from the opened source to the dataset in device memory.
//
// Owns the source and the memory that is reserved for it; what is left of both
// goes back when it is destroyed. Not thread-safe: for the thread that loads.

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
#include "server/dataset/memory_budget.h"
#include "server/load/dataset_loader.h"
#include "server/load/dataset_sources.h"
#include "server/load/decode_budget.h"
#include "server/load/load_plan.h"

namespace datasetd {

class DatasetLoad {
 public:
  // Gives `held` back and reserves what the plan needs. Called where the sizes
  // of the samples were not known, and now are.
  using Reserver = std::function<absl::StatusOr<Reservation>(
      const LoadPlan& plan, Reservation held)>;

  // `resident` is what the source's plan needs, `scratch` what it needs while
  // it is loaded. Samples are decoded on the account, whose user pays for the
  // time.
  DatasetLoad(OpenedSource source, Reservation resident, Reservation scratch,
              const DecodeAccount& account)
      : source_(std::move(source)),
        account_(account),
        scratch_(std::move(scratch)),
        resident_(std::move(resident)) {}

  // From the cache (null: there is none) if it has the dataset undamaged, else
  // from the source. Blocks; `counters` moves meanwhile. REQUIRES: called once.
  // Errors as LoadDataset and FindSampleSizes, and what `reserve` says.
  absl::StatusOr<std::shared_ptr<const Dataset>> Run(DatasetCache* cache,
                                                     const Reserver& reserve,
                                                     LoadCounters& counters);

 private:
  // Null if the cache has it not, or damaged.
  absl::StatusOr<std::shared_ptr<const Dataset>> RunCached(
      DatasetCache& cache, const Reserver& reserve, LoadCounters& counters);
  absl::StatusOr<std::shared_ptr<const Dataset>> LoadEntry(
      CachedSource& entry, const Reserver& reserve, LoadCounters& counters);
  // Looks how large the samples are, and takes the memory for them.
  absl::Status FindSizes(const Reserver& reserve, LoadCounters& counters);
  absl::Status TakeMemory(const LoadPlan& plan, const Reserver& reserve);

  OpenedSource source_;
  const DecodeAccount account_;
  Reservation scratch_;
  Reservation resident_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_DATASET_LOAD_H_
