// The datasets of the daemon by name: who loads, holds and uses them.
//
// Load starts a load, or attaches to the dataset that the same spec made, also
// while that one is loading. A session holds what it loaded or got until it
// releases it or ends; feeds use a dataset. LOADING -> READY or FAILED;
// READY -> UNLOADING -> gone when the last feed has ended. A failed load is
// remembered until its name is loaded again. A load that no session holds any
// more is cancelled; a READY dataset that nobody holds or uses stays until its
// memory is wanted, least recently used first. With a cache, a dataset whose
// spec id is there is loaded from it, and what was read from its source is
// stored.
//
// A private dataset that the caller may not see is answered as one that is not
// there.
//
// Thread-safe. Loads run on threads of the registry's own, at most two of one
// user's at a time; pushes on the thread that asks for them. Memory is freed,
// and the cache is waited for, without the lock.

#ifndef DATASETD_SERVER_REGISTRY_DATASET_REGISTRY_H_
#define DATASETD_SERVER_REGISTRY_DATASET_REGISTRY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/cache/dataset_cache.h"
#include "server/cache/restore_journal.h"
#include "server/dataset/caller.h"
#include "server/dataset/dataset.h"
#include "server/dataset/dataset_info.h"
#include "server/dataset/dataset_spec.h"
#include "server/dataset/device_table.h"
#include "server/dataset/memory_budget.h"
#include "server/dataset/per_user_limit.h"
#include "server/dataset/sample_source.h"
#include "server/dataset/visibility.h"
#include "server/load/dataset_sources.h"
#include "server/load/decode_budget.h"
#include "server/load/load_estimator.h"
#include "server/load/load_plan.h"
#include "server/load/source_scan.h"
#include "server/pipeline/ops/transform_limits.h"
#include "server/registry/dataset_entry.h"
#include "server/registry/dataset_table.h"
#include "server/registry/load_queue.h"
#include "server/registry/scan_list.h"

namespace datasetd {

// What an earlier daemon had loaded for a client.
struct RestoredDataset {
  DatasetSpec spec;
  Caller owner;
  // Finds a pushed dataset in the cache.
  std::string content_hash;
  // Loaded after all others and beside none of them: it may be what ended an
  // earlier daemon.
  bool is_suspect = false;
  // Why it is not loaded again: it comes back FAILED.
  absl::Status refusal;
};

class DatasetRegistry;

// A feed's use of a dataset; ends on destruction.
class DatasetUse {
 public:
  DatasetUse() = default;
  // `uid` is the user's.
  DatasetUse(DatasetRegistry* registry, uint64_t entry_id, uint32_t uid,
             Visibility visibility, std::shared_ptr<const Dataset> dataset)
      : registry_(registry),
        entry_id_(entry_id),
        uid_(uid),
        visibility_(visibility),
        dataset_(std::move(dataset)) {}
  DatasetUse(DatasetUse&& other) noexcept { *this = std::move(other); }
  DatasetUse& operator=(DatasetUse&& other) noexcept;
  ~DatasetUse() { Reset(); }

  const std::shared_ptr<const Dataset>& dataset() const { return dataset_; }
  // Also after Reset.
  const Visibility& visibility() const { return visibility_; }
  // False once the dataset is being unloaded.
  bool IsReady() const;
  void Reset();

 private:
  DatasetRegistry* registry_ = nullptr;
  uint64_t entry_id_ = 0;
  uint32_t uid_ = 0;
  Visibility visibility_;
  std::shared_ptr<const Dataset> dataset_;
};

class DatasetRegistry {
 public:
  using SourceOpener = DatasetSources::Opener;
  struct Counters {
    std::atomic<uint64_t> num_loads = 0;  // begun
    std::atomic<uint64_t> num_ready = 0;
    std::atomic<uint64_t> num_failed = 0;
    std::atomic<uint64_t> num_cancelled = 0;
    std::atomic<uint64_t> num_evicted = 0;
    std::atomic<uint64_t> loaded_bytes = 0;  // of the ready ones
  };
  // For the log: what happened to which dataset, on whose behalf. A brief info.
  using Observer = std::function<void(
      const char* event, const DatasetInfo& info, const Caller& caller)>;

  struct Options {
    uint64_t max_datasets = 0;  // that clients loaded; 0: no limit
    PerUserLimit max_datasets_per_user;
    // All may be null, and outlive the registry.
    DatasetCache* cache = nullptr;
    MemoryBudget* texts = nullptr;  // pays for what datasets say of themselves
    RestoreJournal* journal = nullptr;
    TransformLimits transform_limits;
    DecodeBudget::Limits decode_limits;
  };

  // `devices` and `clock` outlive the registry.
  DatasetRegistry(Options options, DeviceTable* devices,
                  SourceOpener open_source, const Clock* clock,
                  Observer observer);
  // Cancels loads. REQUIRES: no DatasetUse is left.
  ~DatasetRegistry();

  // For the end of the process: scans and loads end soon, and no new one
  // begins. Waits for nothing.
  void CancelLoads();

  // Scans the source's files, which may take long and is listed as LOADING;
  // then starts or attaches, and holds; samples are read in the background.
  // Returns the dataset's id. Errors as DatasetService.LoadDataset; those of
  // reading come by Await.
  //   CANCELLED  scan->is_cancelled was set, or the session ended
  absl::StatusOr<uint64_t> Load(DatasetSpec spec, const Caller& caller,
                                std::shared_ptr<SourceScan> scan = nullptr);

  // Loads in the background what an earlier daemon had; returns at once. They
  // are held by nobody, and a name that is taken is left as it is. What cannot
  // be loaded is FAILED. REQUIRES: called once at most.
  void Restore(std::vector<RestoredDataset> datasets);

  // Loads from a source that somebody feeds, and holds the dataset. Reads on
  // this thread, and returns when it is READY. The spec's format and path are
  // for people; its spec id becomes a hash of name and content. `cancel` is
  // called, under a lock, when nobody wants the push any more: it makes the
  // source's reads fail.
  //   ALREADY_EXISTS  the name is taken
  //   CANCELLED       it was; all other errors as Load, and of the source
  absl::StatusOr<uint64_t> Push(DatasetSpec spec,
                                std::unique_ptr<SampleSource> source,
                                const Caller& caller,
                                std::function<void()> cancel);

  // What a load of `spec` would find and need. Scans the source's files, and
  // begins to look at its samples. Errors as Load's of a wrong spec or source.
  absl::StatusOr<std::unique_ptr<LoadEstimator>> Estimate(
      DatasetSpec spec, const Caller& caller,
      std::shared_ptr<SourceScan> scan = nullptr) const;

  // Holds and describes a dataset that is there. NOT_FOUND if there is none
  // that the caller may see.
  absl::StatusOr<DatasetInfo> Hold(const std::string& name,
                                   const Caller& caller);

  // Waits until the dataset is no longer LOADING, or for `timeout`. NOT_FOUND
  // if it has gone, whatever has its name now.
  absl::StatusOr<DatasetInfo> Await(uint64_t id, absl::Duration timeout) const;
  // By name, for the daemon itself. NOT_FOUND also while Load scans.
  absl::StatusOr<DatasetInfo> Await(const std::string& name,
                                    absl::Duration timeout) const;

  // What the caller may see, by name: those behind `after`, `limit` at most.
  // Brief infos.
  std::vector<DatasetInfo> List(const Caller& caller = Caller(),
                                const std::string& after = "",
                                size_t limit = SIZE_MAX) const;
  // All that there are, scans left out.
  size_t num_datasets() const;

  // For a feed. NOT_FOUND as Hold; FAILED_PRECONDITION if it is not READY.
  absl::StatusOr<DatasetUse> Use(const std::string& name, const Caller& caller);

  //   NOT_FOUND            as Hold
  //   PERMISSION_DENIED    another user loaded it, or has feeds of it
  //   FAILED_PRECONDITION  it has open feeds, and `force` is not set
  // With `force` the dataset goes when its feeds have gone: returns it if it
  // has some, for the caller to end them (FeedTable::DropPending), else null.
  absl::StatusOr<std::shared_ptr<const Dataset>> Unload(const std::string& name,
                                                        bool force,
                                                        const Caller& caller);

  // Makes `bytes` of a device free: evicts datasets that nobody holds or uses,
  // least recently used first. Evicts none where all of them are not enough.
  void MakeRoom(const std::string& device, int64_t bytes);

  // Gives up one session's hold on one dataset, or on all. NOT_FOUND as Hold.
  absl::Status Release(const std::string& name, const Caller& caller);
  void ReleaseSession(uint64_t session_id);

  const Counters& counters() const { return counters_; }

 private:
  friend class DatasetUse;
  using EntryPtr = DatasetTable::EntryPtr;

  struct Restored {
    EntryPtr entry;
    std::string content_hash;
    bool is_suspect = false;
  };

  static absl::Status CheckSpec(const DatasetSpec& spec, const Caller& caller);
  // Slow, and listed meanwhile.
  absl::StatusOr<OpenedSource> ScanSource(DatasetSpec spec,
                                          const Caller& caller,
                                          std::shared_ptr<SourceScan> scan);
  // Waits until what the name stands for is known, if the caller may see it.
  absl::Status AwaitOpened(const std::string& name, const Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether one more dataset of that name may be loaded.
  absl::Status CheckAdmission(const std::string& name,
                              const Caller& caller) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What Load and Push share: an entry with its memory reserved, LOADING.
  // REQUIRES: CheckAdmission, and then MakeRoomFor returned false.
  absl::StatusOr<EntryPtr> Admit(OpenedSource source, const Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reserves the memory for an entry's load.
  absl::Status Prepare(DatasetEntry& entry, OpenedSource source)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Reservation> Reserve(const DatasetSpec& spec,
                                      const LoadPlan& plan,
                                      const Caller& caller)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // As MakeRoom, for a load that has `held_bytes` of it already. Returns
  // whether the lock was given up meanwhile: then look at everything again, and
  // call again.
  bool MakeRoomFor(const DatasetSpec& spec, const LoadPlan& plan,
                   const Caller& caller, uint64_t held_bytes = 0)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Evict(ServedDevice& device, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Frees what was taken out of the table, and gives up the lock meanwhile.
  void Free(std::vector<EntryPtr> entries)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void RunRestore(std::vector<Restored> datasets);
  // Opens a source and queues the load; false if it was not queued.
  bool BeginRestored(const Restored& restored);
  // Slow. `content_hash` is of a pushed dataset.
  absl::StatusOr<OpenedSource> OpenAgain(const DatasetEntry& entry,
                                         const std::string& content_hash) const;
  void RunLoads();
  // Slow. REQUIRES: the entry is LOADING, and this thread's to load.
  absl::StatusOr<std::shared_ptr<const Dataset>> RunLoad(DatasetEntry& entry,
                                                         DatasetCache* cache);
  // To be called before the dataset is READY, so that who waits for that, and
  // then for the cache, finds it stored.
  void StoreInCache(const DatasetEntry& entry,
                    const std::shared_ptr<const Dataset>& dataset);
  // The report of bad samples is kept, too.
  absl::Status ReserveReport(DatasetEntry& entry, const Dataset& dataset);
  // Frees what the load does not need any more, and the dataset if it is not
  // kept: then says why.
  absl::StatusOr<std::shared_ptr<const Dataset>> Settle(
      DatasetEntry& entry,
      absl::StatusOr<std::shared_ptr<const Dataset>> dataset, bool is_push);
  // REQUIRES: the dataset is an error if the load was cancelled.
  void FinishLoad(DatasetEntry& entry,
                  absl::StatusOr<std::shared_ptr<const Dataset>> dataset)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::StatusOr<DatasetInfo> AwaitEntry(EntryPtr entry,
                                         absl::Duration timeout) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndUse(uint64_t entry_id, uint32_t uid);
  bool IsReady(uint64_t entry_id) const;
  void DropHold(DatasetEntry& entry, uint64_t session_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  DatasetInfo DescribeBriefly(const DatasetEntry& entry) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // May be null.
  DatasetCache* const cache_;
  MemoryBudget* const texts_;
  RestoreJournal* const journal_;
  DecodeBudget decode_budget_;
  DecodeBudget staging_budget_;
  DecodeBudget list_budget_;
  const DatasetSources sources_;
  DeviceTable* const devices_;
  const Clock* const clock_;
  const Observer observer_;
  Counters counters_;
  ScanList scans_;

  mutable Mutex mutex_;
  DatasetTable table_ ABSL_GUARDED_BY(mutex_);
  LoadQueue queue_ ABSL_GUARDED_BY(mutex_);
  // Restored ones that are queued or being loaded.
  int num_restoring_ ABSL_GUARDED_BY(mutex_) = 0;
  int num_freeing_ ABSL_GUARDED_BY(mutex_) = 0;  // calls of Free
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_DATASET_REGISTRY_H_
