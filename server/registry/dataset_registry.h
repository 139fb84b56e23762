// The datasets of the daemon by name: their loads, holders and uses.
//
// A load starts a dataset, or attaches to the one of the same spec, even while
// that one is loading. It is a dataset of the table from the first moment: its
// files are looked at, its memory is planned and reserved, its samples are read
// and placed. A session holds a dataset that it loaded or got until it releases
// it or ends; feeds use a dataset. LOADING -> READY or FAILED; READY ->
// UNLOADING -> gone when the last feed has ended. A failed load is kept until
// its name is loaded again, unless it failed before it was planned: then only
// its callers are told. A load that no session holds is cancelled. A
// READY dataset that is neither held nor used stays until its memory is needed;
// the least recently used is evicted first. With a cache, a dataset whose spec
// id is cached is loaded from the cache; others are stored after they were
// read.
//
// A private dataset that the caller may not see is reported as not found.
//
// Thread-safe. Loads run on threads of the registry's own, first on one that
// looks at files, then on one that reads; of each a user has so many at a time.
// Pushes run on the thread that asks for them. Memory is freed,
// and the cache is waited for, without the lock.

#ifndef DATASETD_SERVER_REGISTRY_DATASET_REGISTRY_H_
#define DATASETD_SERVER_REGISTRY_DATASET_REGISTRY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/mutex.h"
#include "datasetd/v1/dataset.pb.h"
#include "server/cache/dataset_cache.h"
#include "server/cache/restore_journal.h"
#include "server/dataset/caller.h"
#include "server/dataset/dataset.h"
#include "server/dataset/dataset_info.h"
#include "server/dataset/decode_budget.h"
#include "server/dataset/device_table.h"
#include "server/dataset/memory_budget.h"
#include "server/dataset/per_user_limit.h"
#include "server/dataset/sample_source.h"
#include "server/load/dataset_sources.h"
#include "server/load/load_plan.h"
#include "server/load/placement.h"
#include "server/load/source_scan.h"
#include "server/pipeline/ops/transform_limits.h"
#include "server/registry/dataset_entry.h"
#include "server/registry/dataset_event.h"
#include "server/registry/dataset_table.h"
#include "server/registry/dataset_use.h"
#include "server/registry/load_call.h"
#include "server/registry/load_queue.h"
#include "server/registry/push_comparison.h"
#include "server/registry/resident_memory.h"

namespace datasetd {

// A dataset that an earlier daemon had loaded for a client.
struct RestoredDataset {
  v1::DatasetSpec spec;  // CheckRequest accepts it
  Caller owner;
  // The cache key of a pushed dataset.
  std::string content_hash;
  // Loaded last and alone, because loading it may have crashed an earlier
  // daemon.
  bool is_suspect = false;
  // If not OK, the dataset is not loaded again but becomes FAILED with this
  // error.
  absl::Status refusal;
};

class DatasetRegistry {
 public:
  using SourceOpener = DatasetSources::Opener;
  struct Counters {
    std::atomic<uint64_t> num_loads = 0;  // started
    std::atomic<uint64_t> num_ready = 0;
    std::atomic<uint64_t> num_failed = 0;
    std::atomic<uint64_t> num_cancelled = 0;
    std::atomic<uint64_t> num_evicted = 0;
    std::atomic<uint64_t> loaded_bytes = 0;  // of READY datasets
  };
  // Called for the log when something happens to a dataset; `caller` is the
  // cause. `info` is brief.
  using Observer = std::function<void(
      DatasetEvent event, const DatasetInfo& info, const Caller& caller)>;

  struct Options {
    uint64_t max_datasets = 0;  // limit on clients' datasets; 0: unlimited
    PerUserLimit max_datasets_per_user;
    // The pointers may be null; they outlive the registry.
    DatasetCache* cache = nullptr;
    MemoryBudget* texts = nullptr;  // charged for the datasets' descriptions
    RestoreJournal* journal = nullptr;
    TransformLimits transform_limits;
    DecodeBudget::Limits decode_limits;
    // A suspect waits for other restores, so that a crash can be blamed on it,
    // but no longer than this: their files may hang.
    absl::Duration max_suspect_wait = absl::Minutes(5);
    // A push waits for the scan of a load of its name, but no longer than this.
    absl::Duration max_push_wait = absl::Seconds(30);
    // What datasets that are neither held nor used may keep: see v1::Config. 0:
    // no limit of the time.
    absl::Duration evict_unused_after;
    uint32_t max_unused_percent = 100;
    absl::Duration evict_interval = absl::Seconds(1);
  };

  // `devices` and `clock` outlive the registry.
  DatasetRegistry(Options options, DeviceTable* devices,
                  SourceOpener open_source, const Clock* clock,
                  Observer observer);
  // Cancels loads. REQUIRES: no DatasetUse exists.
  ~DatasetRegistry();

  // For shutdown: makes loads end soon and refuses new ones. Does not block.
  void CancelLoads();

  // Starts the load of a dataset or attaches to it, and holds it; the call says
  // which one it is. Does not wait for files or samples. Errors as
  // DatasetService.LoadDataset; Await returns those of files and samples.
  absl::StatusOr<std::shared_ptr<LoadCall>> BeginLoad(v1::DatasetSpec spec,
                                                      const Caller& caller);
  // BeginLoad, and blocks until the load is planned. Returns the dataset's id.
  // Errors as BeginLoad and, until then, as Await.
  absl::StatusOr<uint64_t> Load(v1::DatasetSpec spec, const Caller& caller);
  // Blocks until no load of this name is being cancelled, or `timeout` passes.
  // Until then BeginLoad, or Await after it, is ABORTED.
  void AwaitCancelled(const std::string& name, absl::Duration timeout) const;
  // Gives up a call: releases the hold that its session has by it alone.
  void Cancel(const std::shared_ptr<LoadCall>& call);

  // Starts reloading the previous daemon's datasets and returns at once. No
  // session holds them; existing names are skipped. Datasets that cannot be
  // loaded become FAILED. REQUIRES: called at most once.
  void Restore(std::vector<RestoredDataset> datasets);

  using DigestReceiver = std::function<absl::StatusOr<std::vector<Digest>>()>;

  // Loads from a source that a client sends, and holds the dataset. Reads on
  // the calling thread and returns when the dataset is READY. The spec id
  // becomes a hash of name and content. REQUIRES: the format is kPushedFormat.
  // `cancel` is called, under a lock, when the push is no longer wanted; it
  // must make the source's reads fail. If it accepts the same and a READY
  // dataset that the caller may see has the name, the samples are hashed and
  // not stored: the id is of that dataset, which is held, if it is what the
  // push would have made. `receive_digests` is not null then: it waits for the
  // digests of the fields, which a client may send instead of samples that
  // are stored as they are; none: it sends the samples.
  //   ALREADY_EXISTS  the name is in use; or by a dataset that differs
  //   ABORTED         the files of a load of the name are not found yet, or it
  //                   is being cancelled for long; if it accepts the same, it
  //                   is LOADING
  //   CANCELLED       the push was cancelled
  // Other errors as Load, and of the source.
  absl::StatusOr<uint64_t> Push(v1::DatasetSpec spec,
                                std::unique_ptr<SampleSource> source,
                                const Caller& caller,
                                std::function<void()> cancel,
                                DigestReceiver receive_digests = nullptr);

  // Dry run of a load of `spec`: scans the source's files, then the headers of
  // its samples. Blocks. Errors as Load for a bad spec or source; others as
  // EstimateLoad.
  absl::StatusOr<v1::LoadEstimate> Estimate(
      v1::DatasetSpec spec, const Caller& caller,
      std::shared_ptr<SourceScan> scan = std::make_shared<SourceScan>());

  // Whether the caller sees a dataset of this name that is LOADING or READY.
  bool IsThere(const std::string& name, const Caller& caller) const;

  // Holds an existing dataset and returns its description. NOT_FOUND if there
  // is no such dataset that the caller may see.
  absl::StatusOr<DatasetInfo> Hold(const std::string& name,
                                   const Caller& caller);

  // Blocks until the dataset is no longer LOADING or `timeout` passes.
  // NOT_FOUND if the dataset is gone, even if another one has its name.
  absl::StatusOr<DatasetInfo> Await(uint64_t id, absl::Duration timeout) const;
  // Likewise, and until it is known which dataset it is. After it has returned
  // a READY dataset, no Cancel takes the session's hold away. Errors also as of
  // a load that ended before it was planned:
  //   ALREADY_EXISTS      the name is another dataset's
  //   RESOURCE_EXHAUSTED  it does not fit
  //   CANCELLED           it was cancelled
  // Also any error of the source.
  absl::StatusOr<DatasetInfo> Await(const LoadCall& call,
                                    absl::Duration timeout);
  // By name, for tests.
  absl::StatusOr<DatasetInfo> Await(const std::string& name,
                                    absl::Duration timeout) const;

  // Brief infos of datasets that the caller may see, ordered by name: at most
  // `limit` of those with a name greater than `after`.
  std::vector<DatasetInfo> List(const Caller& caller = Caller(),
                                const std::string& after = "",
                                size_t limit = SIZE_MAX) const;
  size_t num_datasets() const;

  // Starts a feed's use of the replica on a device, or on a device of a shard,
  // given as DeviceTable::Find takes it; empty: the first one.
  //   NOT_FOUND            as Hold
  //   FAILED_PRECONDITION  it is not READY
  //   INVALID_ARGUMENT     it has no replica there; names those that it has
  //   FAILED_PRECONDITION  the device has failed
  absl::StatusOr<DatasetUse> Use(const std::string& name, const Caller& caller,
                                 const std::string& device = "");

  // Unloads a dataset. With `force` it goes when its feeds have ended: returns
  // its replicas if it has feeds, which the caller ends
  // (FeedTable::DropPending), else none. Unless `spec_id` is empty, only a
  // dataset with this spec id is unloaded.
  //   NOT_FOUND            as Hold, or it has another spec id
  //   PERMISSION_DENIED    another user loaded it or has feeds of it
  //   FAILED_PRECONDITION  it has open feeds and `force` is not set
  absl::StatusOr<Replicas> Unload(const std::string& name, bool force,
                                  const Caller& caller,
                                  const std::string& spec_id = "");

  // Frees `bytes` on a device by evicting datasets that are neither held nor
  // used, least recently used first. Evicts nothing if that would not be
  // enough.
  void MakeRoom(const std::string& device, int64_t bytes);

  // Evicts datasets that are neither held nor used: those beyond the limits of
  // Options. A thread of the registry does it at every interval if there are
  // any.
  void EvictUnused();
  // The bytes of a budget that datasets take which could be evicted, and the
  // most that EvictUnused leaves.
  uint64_t UnusedBytes(const MemoryBudget& budget) const;
  uint64_t MaxUnusedBytes(const MemoryBudget& budget) const;
  absl::Duration evict_unused_after() const { return evict_unused_after_; }

  // Ends what a device that failed was for: its loads, and the datasets with
  // samples that lie on it alone, which become FAILED. Returns these, whose
  // feeds the caller ends. Replicas elsewhere stay. REQUIRES: its health says
  // that it failed.
  std::vector<std::shared_ptr<const Dataset>> FailDevice(
      const ServedDevice& device);

  // Releases a session's hold on one dataset, or on all. NOT_FOUND as Hold.
  absl::Status Release(const std::string& name, const Caller& caller);
  void ReleaseSession(uint64_t session_id);

  // Returns the account that pays for a user's loads and pushes.
  DecodeAccount AccountOf(uid_t uid) {
    return {.budget = &decode_budget_,
            .uid = uid,
            .staging = &staging_budget_,
            .lists = &list_budget_};
  }

  const Counters& counters() const { return counters_; }

 private:
  friend class DatasetUse;
  using EntryPtr = DatasetTable::EntryPtr;

  // A scan of the files of a source.
  struct ScanJob {
    std::shared_ptr<LoadCall> call;  // null: the entry is restored
    EntryPtr entry;  // null: whether the call means one is not known yet
    std::string content_hash;  // of an entry that was pushed
  };
  void RunScans();
  // Slow. Opens the source and queues the load.
  void Scan(ScanJob job);
  // Adds a dataset that is not planned yet, for the call. Errors as
  // CheckAdmission, and of the budget of texts.
  absl::StatusOr<EntryPtr> AddEntry(const std::shared_ptr<LoadCall>& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the call may mean the dataset, as far as the spec says.
  absl::Status CheckSame(const DatasetEntry& entry, const LoadCall& call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // REQUIRES: CheckSame.
  absl::Status Attach(DatasetEntry& entry,
                      const std::shared_ptr<LoadCall>& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the scan of a call that has no dataset: returns one that was made for
  // it, or null.
  EntryPtr Join(const std::shared_ptr<LoadCall>& call,
                const absl::StatusOr<OpenedSource>& opened)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the scan of a call without a dataset end soon.
  void CancelJoin(const std::shared_ptr<LoadCall>& call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reserves memory for what was opened and queues the load. Returns false if
  // the load has ended instead, or the daemon ends.
  bool QueueLoad(const EntryPtr& entry, absl::StatusOr<OpenedSource>& opened)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends a load that is not planned.
  void FailUnplanned(const EntryPtr& entry, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For pushes, if the caller may see the dataset of this name: blocks until
  // its source is open, or until its load has ended if that is being cancelled.
  absl::Status AwaitPlanned(const std::string& name, const Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For pushes: begins to compare with the dataset of the name, if the caller
  // sees a READY one; else null.
  absl::StatusOr<std::unique_ptr<PushComparison>> BeginComparison(
      const OpenedSource& push, const Caller& caller,
      const std::function<void()>& cancel)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Slow. Returns the dataset's id, and holds it, if it is the same.
  absl::StatusOr<uint64_t> Compare(PushComparison& comparison,
                                   OpenedSource push, const Caller& caller,
                                   const DigestReceiver& receive_digests);
  // Whether one more dataset of that name may be loaded.
  absl::Status CheckAdmission(const std::string& name,
                              const Caller& caller) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For pushes: an entry with its memory reserved, LOADING. REQUIRES:
  // CheckAdmission, and then ResidentMemory::MakeRoom returned false.
  absl::StatusOr<EntryPtr> Admit(OpenedSource source, const Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ReserveTexts(DatasetEntry& entry,
                            const std::vector<std::string>& class_names)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reserves memory for an entry's load, unless its sizes must be found first.
  absl::Status Prepare(DatasetEntry& entry, OpenedSource source)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues the scans of suspects one after another, each when no other restore
  // is awaited. What has not ended within max_suspect_wait is not awaited any
  // more, and neither are further suspects of its user.
  void RestoreSuspects();
  // Ends a load whose scan has not begun, and may be waiting for others.
  void EndWaitingScan(const EntryPtr& entry)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Slow. `content_hash` is set for pushed datasets.
  absl::StatusOr<OpenedSource> OpenAgain(const DatasetEntry& entry,
                                         const std::string& content_hash) const;
  void RunLoads();
  // Ends loads that are cancelled while they wait for their turn, so that what
  // they reserved is free.
  void EndCancelledLoads();
  void RunEvictions();
  // Slow. REQUIRES: the entry is LOADING and this thread loads it.
  absl::StatusOr<Replicas> RunLoad(DatasetEntry& entry);
  // Call before the dataset becomes READY, so that a caller who awaits READY
  // and then the cache finds it stored.
  void StoreInCache(const DatasetEntry& entry,
                    const std::shared_ptr<const Dataset>& dataset);
  // For as long as the entry has samples.
  absl::Status ReserveIndices(DatasetEntry& entry, const LoadPlan& plan,
                              const Placement& placement)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // RESOURCE_EXHAUSTED if the share cannot be so large.
  static absl::Status TakeForIndices(const std::string& name, int64_t bytes,
                                     DecodeBudget::Share& share);
  // The report of bad samples is kept, too.
  absl::Status ReserveReport(DatasetEntry& entry, const Dataset& dataset);
  // Frees what the load does not need any more, and the dataset if it is not
  // kept, and finishes the load. Returns the dataset's error: why. `had_turn`:
  // the entry came from loads_ by Take.
  absl::Status EndLoad(EntryPtr entry, absl::StatusOr<Replicas> replicas,
                       bool had_turn);
  // REQUIRES: they are an error if the load was cancelled.
  void FinishLoad(DatasetEntry& entry, absl::StatusOr<Replicas> replicas)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // A dataset, and which of its devices is meant.
  struct Replica {
    std::shared_ptr<const Dataset> dataset;
    Backend* backend = nullptr;
  };
  // The failure of one of the devices that are to have the dataset.
  absl::Status CheckDevices(const DatasetEntry& entry) const;
  absl::StatusOr<Replica> ReplicaOn(const DatasetEntry& entry,
                                    const std::string& device) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<DatasetInfo> AwaitEntry(EntryPtr entry,
                                         absl::Duration timeout) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndUse(uint64_t entry_id, uint32_t uid);
  bool IsReady(uint64_t entry_id) const;
  void HoldEntry(DatasetEntry& entry, const Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropHold(DatasetEntry& entry, uint64_t session_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DatasetInfo DescribeAwaited(const DatasetEntry& entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DatasetInfo DescribeBriefly(const DatasetEntry& entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // May be null.
  DatasetCache* const cache_;
  MemoryBudget* const texts_;
  RestoreJournal* const journal_;
  const absl::Duration max_suspect_wait_;
  const absl::Duration max_push_wait_;
  const absl::Duration evict_unused_after_;
  const uint32_t max_unused_percent_;
  const absl::Duration evict_interval_;
  DecodeBudget decode_budget_;
  DecodeBudget staging_budget_;
  DecodeBudget list_budget_;
  const DatasetSources sources_;
  DeviceTable* const devices_;
  const Clock* const clock_;
  const Observer observer_;
  Counters counters_;
  mutable Mutex mutex_;
  DatasetTable table_ ABSL_GUARDED_BY(mutex_);
  ResidentMemory memory_ ABSL_GUARDED_BY(mutex_);
  LoadQueue<ScanJob> scans_ ABSL_GUARDED_BY(mutex_);
  LoadQueue<EntryPtr> loads_ ABSL_GUARDED_BY(mutex_);
  // The calls without a dataset.
  std::set<std::shared_ptr<LoadCall>> joining_ ABSL_GUARDED_BY(mutex_);
  // Scans of suspects that are not in scans_ yet.
  std::deque<ScanJob> suspects_ ABSL_GUARDED_BY(mutex_);
  // Number of entries whose is_awaited is set.
  int num_awaited_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_REGISTRY_H_
