// The memory of the datasets of a table: reserves it for loads, and frees that
// of datasets that are neither held nor used, least recently used first.
//
// For the thread that owns the table. Memory is freed on another one, which
// also waits for the cache.

#ifndef DATASETD_SERVER_REGISTRY_RESIDENT_MEMORY_H_
#define DATASETD_SERVER_REGISTRY_RESIDENT_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/event_thread.h"
#include "base/worker.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/cache/dataset_cache.h"
#include "server/dataset/caller.h"
#include "server/dataset/memory_budget.h"
#include "server/load/load_plan.h"
#include "server/load/load_request.h"
#include "server/load/placement.h"
#include "server/registry/dataset_entry.h"
#include "server/registry/dataset_table.h"

namespace datasetd {

class ResidentMemory {
 public:
  // What is freed, by its last owner.
  using Garbage = std::vector<std::shared_ptr<const void>>;

  // `evict` takes a dataset out of the table. `on_freed` is called whenever
  // memory was freed; what waits for memory goes on then. The pointers outlive
  // it. `cache` may be null.
  ResidentMemory(EventThread* owner, DatasetTable* table, DatasetCache* cache,
                 std::function<void(const DatasetTable::EntryPtr&)> evict,
                 std::function<void()> on_freed);

  // Decides what of a load goes where, and reserves that. RESOURCE_EXHAUSTED if
  // it does not fit.
  absl::StatusOr<PlacedMemory> Reserve(const v1::DatasetSpec& spec,
                                       const PlacementRequest& request,
                                       const LoadPlan& plan,
                                       const Caller& caller);

  // Evicts datasets for a load; none if that would not be enough. Returns
  // whether memory is being freed: then wait until it is, look at everything
  // again, and call again. `for_restored`: as DatasetEntry::IsUnused.
  bool MakeRoom(const v1::DatasetSpec& spec, const PlacementRequest& request,
                const LoadPlan& plan, const Caller& caller, bool for_restored);
  // Likewise, until `bytes` of the budget are free.
  bool MakeRoom(const MemoryBudget& budget, int64_t bytes, bool for_restored);

  // Evicts unused datasets so that those of the budget keep at most `bytes`.
  void Trim(const MemoryBudget& budget, int64_t bytes);
  // Evicts unused datasets that nobody has used since `time`.
  void EvictUnusedSince(absl::Duration time);

  // Frees it on another thread, and then calls `then` on the owner's.
  void Free(Garbage garbage, std::function<void()> then = nullptr);
  // Blocks until what Free was called for before is freed, and what follows
  // from that is done. Not for the owner's thread.
  void AwaitFreed();

 private:
  // Sets `is_possible` to whether all of it is, or can be made, free.
  bool MakeRoom(const v1::DatasetSpec& spec, const PlacementRequest& request,
                const Placement& placement, const Caller& caller,
                bool for_restored, bool* is_possible);

  void Evict(const std::vector<DatasetTable::EntryPtr>& entries);

  EventThread* const owner_;
  DatasetTable* const table_;
  DatasetCache* const cache_;
  const std::function<void(const DatasetTable::EntryPtr&)> evict_;
  const std::function<void()> on_freed_;
  int num_freeing_ = 0;  // calls of Free that have not ended
  Worker freeing_{"free"};
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_RESIDENT_MEMORY_H_
