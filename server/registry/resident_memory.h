// The memory of the datasets of a table: reserves it for loads, and frees that
// of datasets that are neither held nor used, least recently used first.
//
// Has no lock of its own. REQUIRES of every call: the mutex that guards the
// table is held. Freeing gives it up meanwhile.

#ifndef DATASETD_SERVER_REGISTRY_RESIDENT_MEMORY_H_
#define DATASETD_SERVER_REGISTRY_RESIDENT_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/cache/dataset_cache.h"
#include "server/dataset/caller.h"
#include "server/dataset/memory_budget.h"
#include "server/load/load_plan.h"
#include "server/load/placement.h"
#include "server/registry/dataset_entry.h"
#include "server/registry/dataset_table.h"

namespace datasetd {

// Returns the terms on which a caller reserves memory for a dataset.
MemoryBudget::Terms TermsOf(const v1::DatasetSpec& spec, const Caller& caller);

class ResidentMemory {
 public:
  using OnEvicted = std::function<void(const DatasetEntry& entry)>;
  using Entries = std::vector<DatasetTable::EntryPtr>;

  // The pointers outlive it. `cache` may be null.
  ResidentMemory(Mutex* mutex, DatasetTable* table, DatasetCache* cache,
                 OnEvicted on_evicted);

  // Decides what of a load goes where, and reserves that. RESOURCE_EXHAUSTED if
  // it does not fit.
  absl::StatusOr<PlacedMemory> Reserve(const v1::DatasetSpec& spec,
                                       const PlacementRequest& request,
                                       const LoadPlan& plan,
                                       const Caller& caller);

  // Evicts datasets for a load; none if that would not be enough. Returns
  // whether the mutex was given up meanwhile: then look at everything again,
  // and call again. `for_restored`: as DatasetEntry::IsUnused.
  bool MakeRoom(const v1::DatasetSpec& spec, const PlacementRequest& request,
                const LoadPlan& plan, const Caller& caller, bool for_restored);
  // Likewise, until `bytes` of the budget are free.
  bool MakeRoom(const MemoryBudget& budget, int64_t bytes, bool for_restored);

  // Evicts unused datasets so that those of the budget keep at most `bytes`.
  void Trim(const MemoryBudget& budget, int64_t bytes);
  // Evicts unused datasets that nobody has used since `time`.
  void EvictUnusedSince(absl::Duration time);

  // Frees what was taken out of the table, and gives up the mutex meanwhile.
  void Free(Entries entries) ABSL_NO_THREAD_SAFETY_ANALYSIS;

 private:
  // Sets `is_possible` to whether all of it is, or can be made, free.
  bool MakeRoom(const v1::DatasetSpec& spec, const PlacementRequest& request,
                const Placement& placement, const Caller& caller,
                bool for_restored, bool* is_possible);

  // Frees them, unless there are none.
  void Evict(Entries entries);

  Mutex* const mutex_;
  DatasetTable* const table_;
  DatasetCache* const cache_;
  const OnEvicted on_evicted_;
  int num_freeing_ = 0;  // calls of Free
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_RESIDENT_MEMORY_H_
