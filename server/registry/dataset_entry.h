// One dataset in the registry, from the first moment of its load.
//
// A plain record, not thread-safe: guarded by the registry's lock. Its spec
// does not change. Once it is planned `load` belongs to the loading thread
// while the dataset is LOADING, and is used without the lock.
//
// Describe and DescribeBriefly add to the message what changes: state, error,
// progress, the numbers of feeds and holders, the devices' failures; and texts.

#ifndef DATASETD_SERVER_REGISTRY_DATASET_ENTRY_H_
#define DATASETD_SERVER_REGISTRY_DATASET_ENTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/dataset/caller.h"
#include "server/dataset/dataset.h"
#include "server/dataset/dataset_info.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/memory_budget.h"
#include "server/load/dataset_load.h"
#include "server/load/dataset_sources.h"
#include "server/load/load_plan.h"
#include "server/load/placement.h"
#include "server/load/sample_loader.h"
#include "server/load/source_scan.h"
#include "server/registry/load_call.h"
#include "server/registry/push_comparison.h"

namespace datasetd {

// A dataset on each of its devices, in their order.
using Replicas = std::vector<std::shared_ptr<const Dataset>>;

struct DatasetEntry : DatasetInfo {
  uint64_t id = 0;
  // Loaded even if no session holds it.
  bool is_restored = false;
  // A session has held it, or a feed has read it.
  bool was_used = false;
  // It is being restored, and suspects wait until that has ended.
  bool is_awaited = false;
  // The user for whom the next daemon loads the name again: it was restored, or
  // has been READY. What replaces a failed dataset keeps the name for the same
  // user until it is READY itself.
  std::optional<uint32_t> kept_for;
  // A spec id without the files, known before they are; empty for a push.
  std::string request_id;
  // False until the source's files are found; what follows, and what the
  // message says of samples and memory, is set then.
  bool is_planned = false;
  std::vector<std::string> classes;  // v1::Dataset::class_names
  // A warning about a dataset beside it that has other classes; empty: none. It
  // depends on what was resident, so that the cache does not keep it.
  std::string sibling_note;
  // A client's load has it from the start.
  PlacementRequest placement;
  bool is_replicated = false;
  // The memory that it takes of each budget.
  std::map<const MemoryBudget*, int64_t> bytes_in;
  // Times of the monotonic clock.
  absl::Duration started;
  absl::Duration finished;
  absl::Duration last_used;
  std::set<uint64_t> holders;  // session ids
  // Holders that got it, by name or by a load that has ended: a load of
  // theirs that is given up leaves the hold.
  std::set<uint64_t> getters;
  std::map<uint32_t, int> num_feeds_of;  // by uid
  Reservation text_reservation;
  Reservation report_reservation;
  // The host's copies of packed fields' indices. Null before they are planned.
  std::unique_ptr<DecodeBudget::Share> index_memory;
  // Until the load ends.
  std::unique_ptr<DatasetLoad> load;
  // For the replicas after the first.
  std::vector<Reservation> replica_reservations;
  LoadCounters counters;
  // Until it is planned: the scan of its files, and the calls that are told
  // if it fails.
  std::shared_ptr<SourceScan> scan;
  std::vector<std::shared_ptr<LoadCall>> calls;
  // All calls that wait for the load, and some that have ended.
  std::vector<std::weak_ptr<LoadCall>> waiting;
  // The failed load that had its name, while this one is LOADING; it comes back
  // if this one fails before it is planned, or is cancelled, but not if its
  // user unloads this one. If the name is kept for another user, it stays while
  // this one is FAILED, and comes back when this one's user unloads it.
  std::shared_ptr<DatasetEntry> replaced;
  // For a push, while it is LOADING.
  std::function<void()> cancel;
  // While READY or UNLOADING; not empty then.
  Replicas replicas;
  // Pushes that are compared with it, which keeps it from eviction. Empty
  // unless it is READY.
  std::set<PushComparison*> comparisons;

  int64_t BytesIn(const MemoryBudget& budget) const;
  // True if a load of the caller may have its name: it has failed, and is not
  // kept for another user, or the load is of the same. `request` is empty for a
  // push.
  bool IsReplaceable(const Caller& caller, const std::string& request) const;
  int CountFeeds() const;
  // True if failed devices take the dataset away: one had samples that no other
  // has, or there is none left to feed from.
  bool IsLost() const;
  // DATA_LOSS if it is READY and its samples cannot be read any more.
  absl::Status CheckReadable() const;
  // True if it is READY and may be evicted. With `for_restored` a dataset that
  // is restored needs the room: it does not take that of another restored one
  // which was not used since, whose jobs may be on their way back.
  bool IsUnused(bool for_restored) const;
  bool is_cancelled() const {
    return counters.is_cancelled.load(std::memory_order_relaxed);
  }
  // True until its load has ended, which then gives up the name.
  bool is_being_cancelled() const {
    return state == DatasetState::kLoading && is_cancelled();
  }

  // Sets what is known about the source before any sample is read.
  void SetSource(const OpenedSource& source, const Placement& placed);
  void SetPlan(const LoadPlan& plan, const Placement& placed);
  // Sets what is known once it is READY.
  void SetReplicas(Replicas loaded);
  // Makes its scan, push or load end soon if it is LOADING.
  void Cancel();
  // Ends the pushes that are compared with it.
  void CancelComparisons();
  void ClearHolders() {
    holders.clear();
    getters.clear();
  }

  // Leaves out the texts, which may be long; see DatasetInfo.
  DatasetInfo DescribeBriefly(absl::Duration now) const;
  DatasetInfo Describe(absl::Duration now) const;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_ENTRY_H_
