// One dataset in the registry, from the first moment of its load.
//
// A plain record of the registry's thread. Its spec and its owner do not
// change, nor, while it is READING, its placement, spec id and classes, which
// the thread that reads it uses.
//
// Describe and DescribeBriefly add to the message what changes: state, error,
// progress, the numbers of feeds and holders, the devices' failures; and texts.

#ifndef DATASETD_SERVER_REGISTRY_DATASET_ENTRY_H_
#define DATASETD_SERVER_REGISTRY_DATASET_ENTRY_H_

#include <atomic>
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
#include "server/registry/dataset_state.h"
#include "server/registry/load_call.h"
#include "server/registry/push_comparison.h"

namespace datasetd {

// A dataset on each of its devices, in their order.
using Replicas = std::vector<std::shared_ptr<const Dataset>>;

// A load that waits for its turn, or for memory.
struct PreparedLoad {
  std::optional<OpenedSource> source;  // while PLANNED
  std::unique_ptr<DatasetLoad> load;   // while QUEUED
  // For the replicas after the first.
  std::vector<Reservation> replica_reservations;

  bool is_empty() const { return !source.has_value() && load == nullptr; }
};

// The work of a load. Whoever does it shares the scan and the counters with the
// registry.
struct LoadWork {
  std::shared_ptr<SourceScan> scan = std::make_shared<SourceScan>();
  LoadCounters counters;
  PreparedLoad prepared;
  std::function<void()> cancel;  // of a push, which ends soon then
  absl::Status error;            // why it ends, if that is known

  // Makes who does it end soon.
  void Stop() {
    scan->Cancel();
    counters.Cancel();
  }
};

// One user's calls that mean a dataset whose files are known, and ask whether
// these are unchanged.
struct FileCheck {
  uint32_t uid = 0;
  uint64_t entry_id = 0;
  std::shared_ptr<SourceScan> scan = std::make_shared<SourceScan>();
  bool has_begun = false;
  std::vector<std::shared_ptr<LoadCall>> calls;
};

// Who has a dataset.
struct Holds {
  std::set<uint64_t> sessions;
  // Sessions that got it, by name or by a load that has ended: a call of theirs
  // that is given up leaves the hold.
  std::set<uint64_t> lasting;
  std::map<uint32_t, int> feeds;  // by uid
  bool was_used = false;          // a session has held it, or a feed read it
  absl::Duration last_used;       // of the monotonic clock

  void Add(uint64_t session_id, absl::Duration now) {
    sessions.insert(session_id);
    was_used = true;
    last_used = now;
  }
  int CountFeeds() const;
  void Clear() {
    sessions.clear();
    lasting.clear();
  }
};

// Of a dataset that an earlier daemon had.
struct Restoring {
  bool is_restored = false;  // loaded even if no session holds it
  bool is_awaited = false;   // suspects wait until its load has ended
  std::string content_hash;  // of what was pushed
};

// What a dataset is, as far as the message does not say it.
struct EntryContent {
  // v1::Dataset::class_names. Never null.
  std::shared_ptr<const std::vector<std::string>> classes =
      std::make_shared<const std::vector<std::string>>();
  // A warning about a dataset beside it that has other classes; empty: none. It
  // depends on what was resident, so that the cache does not keep it.
  std::string sibling_note;
  bool is_replicated = false;
  Replicas replicas;  // while READY or UNLOADING; not empty then
  // Whether it is READY, for its feeds.
  std::shared_ptr<std::atomic<bool>> is_ready =
      std::make_shared<std::atomic<bool>>(false);
  // Pushes that are compared with it, which keeps it from eviction. Empty
  // unless it is READY.
  std::set<PushComparison*> comparisons;
};

// The memory that a dataset takes.
struct EntryMemory {
  std::map<const MemoryBudget*, int64_t> bytes_in;
  Reservation texts;
  Reservation report;
  // The host's copies of packed fields' indices. Null before they are planned.
  std::unique_ptr<DecodeBudget::Share> indices;
};

struct DatasetEntry : DatasetInfo {
  uint64_t id = 0;
  Stage stage = Stage::kAsked;
  // A spec id without the files, known before they are; empty for a push.
  std::string request_id;
  PlacementRequest placement;
  Holds holds;
  Restoring restoring;
  // The user for whom the next daemon loads the name again: it was restored, or
  // has been READY. What replaces a failed dataset keeps the name for the same
  // user until it is READY itself.
  std::optional<uint32_t> kept_for;
  EntryMemory memory;
  absl::Duration started;  // of the monotonic clock
  absl::Duration finished;
  std::shared_ptr<LoadWork> work = std::make_shared<LoadWork>();
  // Calls that wait for the load, and some that have ended.
  std::vector<std::weak_ptr<LoadCall>> calls;
  std::map<uint32_t, std::shared_ptr<FileCheck>> checks;  // by uid
  // The failed load that had its name, while this one is LOADING; it comes back
  // if this one fails before it is planned, or is cancelled, but not if its
  // user unloads this one. If the name is kept for another user, it stays while
  // this one is FAILED, and comes back when this one's user unloads it.
  std::shared_ptr<DatasetEntry> replaced;
  EntryContent content;

  int64_t BytesIn(const MemoryBudget& budget) const;
  // True if its samples come from a client.
  bool is_push() const {
    return spec->format() == kPushedFormat && !restoring.is_restored;
  }
  // True once its files are known.
  bool is_planned() const { return is_push() || !dataset.spec_id().empty(); }
  // True if a load of the caller may have its name: it has failed, and is not
  // kept for another user, or the load is of the same. `request` is empty for a
  // push.
  bool IsReplaceable(const Caller& caller, const std::string& request) const;
  // True if failed devices take the dataset away: one had samples that no other
  // has, or there is none left to feed from.
  bool IsLost() const;
  // DATA_LOSS if it is READY and its samples cannot be read any more.
  absl::Status CheckReadable() const;
  // True if it is READY and may be evicted. With `for_restored` a dataset that
  // is restored needs the room: it does not take that of another restored one
  // which was not used since, whose jobs may be on their way back.
  bool IsUnused(bool for_restored) const;

  // Goes to the next stage. REQUIRES: the event can happen. Returns the
  // effects, which are the caller's to bring about.
  uint8_t Change(StageEvent event);
  // Sets what is known about the source before any sample is read.
  void SetSource(const OpenedSource& source, const Placement& placed);
  void SetPlan(const LoadPlan& plan, const Placement& placed);
  // Sets what is known once it is READY.
  void SetReplicas(Replicas loaded);
  // Takes out everything that takes memory.
  std::vector<std::shared_ptr<const void>> TakeMemory();

  // Leaves out the texts, which may be long; see DatasetInfo.
  DatasetInfo DescribeBriefly(absl::Duration now) const;
  DatasetInfo Describe(absl::Duration now) const;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_ENTRY_H_
