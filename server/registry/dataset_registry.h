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
// One thread owns the table of datasets. Calls, sessions and workers send it
// events and wait, if at all, for their answers. What an event does is in
// dataset_state.cc. Whatever takes long, as files, samples and the freeing of
// memory do, runs elsewhere: workers get what they need and send back what they
// found. Of looks at files, and of reads, a user has so many at a time. Pushes
// are read by the call that sends them.
//
// Thread-safe.

#ifndef DATASETD_SERVER_REGISTRY_DATASET_REGISTRY_H_
#define DATASETD_SERVER_REGISTRY_DATASET_REGISTRY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/event_thread.h"
#include "base/worker_pool.h"
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

  struct Totals {
    uint64_t num_loads = 0;  // started
    uint64_t num_ready = 0;
    uint64_t num_failed = 0;
    uint64_t num_cancelled = 0;
    uint64_t loaded_bytes = 0;  // of READY datasets
    uint64_t num_evicted = 0;
    // How often it was asked whether unused datasets are to go.
    uint64_t num_eviction_rounds = 0;
  };
  // What GetStatus and the metrics say of all datasets together.
  struct Summary {
    Totals totals;
    size_t num_datasets = 0;
    absl::Duration evict_unused_after;
    // The bytes of each budget that datasets take which could be evicted, and
    // the most that are kept.
    struct Unused {
      uint64_t bytes = 0;
      uint64_t max_bytes = 0;
    };
    std::map<const MemoryBudget*, Unused> unused;
    // The most processor time that one event took.
    absl::Duration longest_event;
  };

  // `devices` and `clock` outlive the registry.
  DatasetRegistry(Options options, DeviceTable* devices,
                  SourceOpener open_source, const Clock* clock,
                  Observer observer);
  // Cancels loads. REQUIRES: no DatasetUse exists.
  ~DatasetRegistry();

  // For shutdown: makes loads end soon, settles all calls and refuses new ones.
  // Does not block.
  void CancelLoads();

  // Starts the load of a dataset or attaches to it, and holds it; while a load
  // of the name is being cancelled, when that has ended. Does not wait for any
  // of this, nor for files or samples. Errors as DatasetService.LoadDataset, as
  // far as they are known; LoadCall::Await returns the others.
  absl::StatusOr<std::shared_ptr<LoadCall>> BeginLoad(v1::DatasetSpec spec,
                                                      const Caller& caller);
  // Starts reloading the previous daemon's datasets and returns at once. No
  // session holds them; existing names are skipped. Datasets that cannot be
  // loaded become FAILED. REQUIRES: called at most once.
  void Restore(std::vector<RestoredDataset> datasets);

  using DigestReceiver = std::function<absl::StatusOr<std::vector<Digest>>()>;
  struct PushCalls {
    // Called, on another thread, when the push is no longer wanted; makes the
    // source's reads fail.
    std::function<void()> cancel;
    // Waits for the digests of the fields, which a client may send instead of
    // samples that are stored as they are; none: it sends the samples. Null:
    // the push does not accept the same.
    DigestReceiver receive_digests;
    // Whether the client has given up, while the push waits. May be null.
    std::function<bool()> is_given_up;
  };

  // Loads from a source that a client sends, and holds the dataset. Reads on
  // the calling thread and returns when the dataset is READY. The spec id
  // becomes a hash of name and content. REQUIRES: the format is kPushedFormat.
  // If it accepts the same and the caller may see a dataset of the name, that
  // is awaited, and the samples are hashed and not stored: returns that
  // dataset, which is held, if it is what the push would have made. A load of
  // the name that is being cancelled is awaited, and so are the files of one.
  //   ALREADY_EXISTS  the name is in use; or by a dataset that differs; or the
  //                   files of a load of the name are not found for long
  //   CANCELLED       the push was cancelled
  // Other errors as of a load, and of the source.
  absl::StatusOr<DatasetInfo> Push(v1::DatasetSpec spec,
                                   std::unique_ptr<SampleSource> source,
                                   const Caller& caller, PushCalls calls);

  // Describes a dataset, and holds it for the caller's session if it is LOADING
  // or READY, unless it `only_describes`. NOT_FOUND if there is no such dataset
  // that the caller may see.
  absl::StatusOr<DatasetInfo> Hold(const std::string& name,
                                   const Caller& caller,
                                   bool only_describes = false);

  // Brief infos of datasets that the caller may see, ordered by name: at most
  // `limit` of those with a name greater than `after`.
  std::vector<DatasetInfo> List(const Caller& caller = Caller(),
                                const std::string& after = "",
                                size_t limit = SIZE_MAX) const;

  // Starts a feed's use of the replica on a device, or on a device of a shard,
  // given as DeviceTable::Find takes it; empty: the first one.
  //   NOT_FOUND            as Hold
  //   FAILED_PRECONDITION  it is not READY
  //   INVALID_ARGUMENT     it has no replica there; names those that it has
  //   FAILED_PRECONDITION  the device has failed
  absl::StatusOr<DatasetUse> Use(const std::string& name, const Caller& caller,
                                 const std::string& device = "");

  // Unloads a dataset, and frees its memory. With `force` it goes when its
  // feeds have ended: returns its replicas if it has feeds, which the caller
  // ends (FeedTable::DropPending), else none. Unless `spec_id` is empty, only a
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
  // Ends what a device that failed was for: its loads, and the datasets with
  // samples that lie on it alone, which become FAILED. Returns these, whose
  // feeds the caller ends. Replicas elsewhere stay. REQUIRES: its health says
  // that it failed.
  Replicas FailDevice(const ServedDevice& device);

  // Releases a session's hold on one dataset, or on all. NOT_FOUND as Hold.
  absl::Status Release(const std::string& name, const Caller& caller);
  void ReleaseSession(uint64_t session_id);

  Summary Summarize() const;
  const DatasetSources& sources() const { return sources_; }

 private:
  friend class DatasetUse;
  friend struct LoadCall;
  using EntryPtr = DatasetTable::EntryPtr;
  using CallPtr = std::shared_ptr<LoadCall>;

  // A look at the files of a source: of a load, or of calls that mean a dataset
  // which is there.
  struct ScanTask {
    EntryPtr entry;
    std::shared_ptr<FileCheck> check;
    std::shared_ptr<const v1::DatasetSpec> spec;
    Caller owner;
    std::shared_ptr<SourceScan> scan;
    bool is_restored = false;
    std::string content_hash;  // of what was pushed
  };
  // Something that a thread waits for. `attempt` returns whether it was
  // answered; else it is called again when something has changed.
  struct Request {
    std::function<bool()> attempt;
    Latch answered;
  };
  struct BegunPush;

  // --- On any thread ---

  // Has the owner answer a request, and blocks until it is answered. False if
  // it is given up before; then it is not attempted any more.
  bool Ask(std::function<bool()> attempt,
           const std::function<bool()>& is_given_up = nullptr);
  // Slow. Look at files, and send what was found.
  absl::StatusOr<OpenedSource> Open(const ScanTask& task) const;
  void Scan(ScanTask& task);
  // Slow. Reads the samples.
  absl::StatusOr<Replicas> Read(DatasetEntry& entry, PreparedLoad& load);
  // Call before the dataset becomes READY, so that a caller who awaits READY
  // and then the cache finds it stored.
  void StoreInCache(const DatasetEntry& entry,
                    const std::shared_ptr<const Dataset>& dataset);
  // Slow. Returns the dataset, and holds it, if it is the same.
  absl::StatusOr<DatasetInfo> Compare(PushComparison& comparison,
                                      OpenedSource push, const Caller& caller,
                                      const DigestReceiver& receive_digests);
  // RESOURCE_EXHAUSTED if the share cannot be so large.
  static absl::Status TakeForIndices(const std::string& name, int64_t bytes,
                                     DecodeBudget::Share& share);
  void EndUse(uint64_t entry_id, uint32_t uid);
  // As LoadCall::Await and Cancel.
  absl::StatusOr<DatasetInfo> DescribeFor(LoadCall& call) const;
  void GiveUp(const CallPtr& call);
  // The failure of one of the devices that are to have the dataset.
  absl::Status CheckDevices(const DatasetEntry& entry) const;

  // --- On the owner's thread ---

  // What follows from a change of the table: whatever waits is tried again,
  // after the event that is being handled.
  void GoOn();
  // Changes the stage of a dataset, and brings about what goes with it.
  void Apply(const EntryPtr& entry, StageEvent event);
  // Gives tasks to the workers while users have turns.
  void Dispatch();
  // Opens a call's latch, with the error that it gets.
  static void Settle(LoadCall& call, const absl::Status& error);
  static void SettleAll(DatasetEntry& entry, const absl::Status& error);

  // A load is asked for.
  absl::Status Begin(const CallPtr& call);
  absl::Status CheckAdmission(const std::string& name,
                              const Caller& caller) const;
  // A dataset that is asked for now, and is not in the table yet.
  EntryPtr MakeEntry(std::shared_ptr<const v1::DatasetSpec> spec,
                     const Caller& owner) const;
  absl::Status AddEntry(const CallPtr& call);
  // Whether the call may mean the dataset, as far as the spec says.
  static absl::Status CheckSame(const DatasetEntry& entry,
                                const LoadCall& call);
  absl::Status Attach(DatasetEntry& entry, const CallPtr& call);
  // Attaches the call if the files are as they were when it was planned.
  void CheckFiles(DatasetEntry& entry, const CallPtr& call);
  void OnChecked(FileCheck& check, const absl::StatusOr<std::string>& spec_id);
  // Its calls begin again.
  void EndCheck(const std::shared_ptr<FileCheck>& check);
  // Also ends the comparisons.
  void EndChecks(DatasetEntry& entry);
  // Calls that have no dataset.
  std::vector<CallPtr> WaitingCalls() const;
  // Takes a call out of what it waits for; false if it has a dataset.
  bool CancelWaiting(const CallPtr& call);

  void OnScanned(const EntryPtr& entry, absl::StatusOr<OpenedSource>& opened);
  // Reserves memory for a load that is PLANNED and queues it, unless memory is
  // being freed that it may need.
  void TryReserve(const EntryPtr& entry);
  absl::Status Prepare(DatasetEntry& entry);
  // Reserves memory for a load that knows its sizes only now; false: call it
  // again when something has changed.
  bool ReserveAgain(DatasetEntry& entry, const LoadPlan& plan,
                    absl::StatusOr<PlacedMemory>& reserved);
  absl::Status ReserveTexts(DatasetEntry& entry,
                            const std::vector<std::string>& class_names);
  // For as long as the entry has samples.
  absl::Status ReserveIndices(DatasetEntry& entry, const LoadPlan& plan,
                              const Placement& placement);
  // The report of bad samples is kept, too.
  absl::Status ReserveReport(DatasetEntry& entry, const Dataset& dataset);
  void OnRead(const EntryPtr& entry, absl::StatusOr<Replicas>& replicas);
  // Takes a load that waits out of its queue, frees what it has, and ends it.
  void DropWork(const EntryPtr& entry);
  // Ends a load without samples. REQUIRES: nobody works on it, and what it had
  // is freed.
  void Fail(const EntryPtr& entry);
  void EndRestore(DatasetEntry& entry);

  // Lets suspects be scanned, one after another, each when no other restore is
  // awaited. What has not ended within max_suspect_wait is not awaited any
  // more, and neither are further suspects of its user.
  void NextSuspects();
  void EndWait(uint64_t wait);
  void AddRestore(ScanTask task);

  // Begins a push, or a comparison; false: call it again when something has
  // changed.
  bool BeginPush(OpenedSource& source, const Caller& caller,
                 const PushCalls& calls, BegunPush& begun);
  // A dataset, LOADING, for a push. REQUIRES: CheckAdmission, and then
  // ResidentMemory::MakeRoom returned false.
  absl::Status Admit(OpenedSource& source, const Caller& caller,
                     const PushCalls& calls, BegunPush& begun);

  // A dataset, and which of its devices is meant.
  struct Replica {
    std::shared_ptr<const Dataset> dataset;
    Backend* backend = nullptr;
  };
  absl::StatusOr<Replica> ReplicaOn(const DatasetEntry& entry,
                                    const std::string& device) const;
  // Evicts datasets that are neither held nor used: those beyond the limits of
  // Options; and again after the interval.
  void EvictUnused();
  std::vector<const MemoryBudget*> Budgets() const;
  uint64_t MaxUnusedBytes(const MemoryBudget& budget) const;
  void DropHold(const EntryPtr& entry, uint64_t session_id);
  DatasetInfo DescribeBriefly(const DatasetEntry& entry) const;
  std::vector<EntryPtr> Entries() const;

  // May be null.
  DatasetCache* const cache_;
  MemoryBudget* const texts_;
  RestoreJournal* const journal_;
  const absl::Duration max_suspect_wait_;
  const absl::Duration max_push_wait_;
  const absl::Duration evict_unused_after_;
  const uint32_t max_unused_percent_;
  const absl::Duration evict_interval_;
  const DatasetSources sources_;
  DeviceTable* const devices_;
  const Clock* const clock_;
  const Observer observer_;

  // The owner's.
  Totals totals_;
  DatasetTable table_;
  LoadQueue<ScanTask> scans_;
  LoadQueue<EntryPtr> loads_;
  // Calls that begin when a load of their name has ended.
  std::vector<CallPtr> waiting_calls_;
  std::list<std::shared_ptr<Request>> requests_;
  bool will_go_on_ = false;
  // Scans of suspects that are not in scans_ yet.
  std::deque<ScanTask> suspects_;
  int num_awaited_ = 0;           // entries whose is_awaited is set
  std::set<uint32_t> slow_uids_;  // whose restores took too long
  uint64_t suspect_wait_ = 0;     // number of the wait that is under way
  bool has_suspect_timer_ = false;
  bool is_stopping_ = false;

  mutable EventThread owner_{"datasets"};
  ResidentMemory memory_;
  std::unique_ptr<WorkerPool> workers_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_REGISTRY_H_
