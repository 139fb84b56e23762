// A disk cache of resident datasets, for fast restarts. Entries are found by
// spec id, or by content hash if the source is gone.
//
// A dataset that is stored is written in the background by a thread of the
// cache; the file appears whole (temporary file, sync, rename) or not at all,
// and what a crash left over is removed at the next start. The files keep below
// the limits of CacheIndex, which says which of them go. Users take turns to be
// stored. Whatever goes wrong is an event and a count, and costs the entry at
// most, never the load. Thread-safe.

#ifndef DATASETD_SERVER_CACHE_DATASET_CACHE_H_
#define DATASETD_SERVER_CACHE_DATASET_CACHE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/cache/cache_entry.h"
#include "server/cache/cache_index.h"
#include "server/cache/cached_source.h"
#include "server/cache/copy_gate.h"
#include "server/cache/mapped_entry.h"
#include "server/dataset/dataset.h"
#include "server/files/store_directory.h"

namespace datasetd {

class DatasetCache {
 public:
  struct Counters {
    std::atomic<uint64_t> num_hits = 0;
    std::atomic<uint64_t> num_misses = 0;
    std::atomic<uint64_t> num_stored = 0;
    std::atomic<uint64_t> num_evicted = 0;
    // Entries that could not be read, and failed writes.
    std::atomic<uint64_t> num_errors = 0;
    std::atomic<uint64_t> read_bytes = 0;
    std::atomic<uint64_t> written_bytes = 0;
  };
  // For the log: what happened to which file, which the user's load stored;
  // OK, or why.
  using Observer =
      std::function<void(const char* event, uint32_t uid,
                         const std::string& name, const absl::Status& status)>;

  // Looks at what is there; removes leftovers and damaged entries, and what is
  // over the limits (of total_bytes 0: half of what is free, and what is there
  // already). An entry that the disk does not give now is kept, for the daemon.
  // `observer` may be called on any thread.
  //   what StoreDirectory::List says; RESOURCE_EXHAUSTED: too many open files
  static absl::StatusOr<std::unique_ptr<DatasetCache>> Open(
      std::unique_ptr<StoreDirectory> directory, CacheIndex::Limits limits,
      Observer observer);
  // Abandons unfinished writes. REQUIRES: the backends of stored datasets still
  // exist.
  ~DatasetCache();

  // Null if there is no entry, or one that no dataset is served from and that
  // has bad samples that may be good when they are read again. Marks the entry
  // as used.
  std::unique_ptr<CachedSource> Find(const std::string& spec_id);

  // Counts a load from this source.
  void CountHit(const CachedSource& source);

  // After an entry could not be read: removes it if it is damaged (DATA_LOSS),
  // and keeps it after a fault of the system (UNAVAILABLE). False for all other
  // reasons, which are not the entry's.
  bool GiveUp(const std::string& spec_id, const absl::Status& why);

  // Starts storing the dataset in the background, unless it is freed first or
  // has bad samples that may be good when they are read again.
  // Fields, samples, bad samples and hash are taken from the dataset.
  void Store(CacheHeader header, const std::shared_ptr<const Dataset>& dataset);

  // For datasets that are served from their entry. Its memory is that of the
  // file: a writable one until Finish.
  //
  // Begins an entry with the size of `header`, of which the hash, the spec id
  // and the checksums are not used. It is removed when it is destroyed.
  //   RESOURCE_EXHAUSTED  over a limit of the cache, or the disk is full
  absl::StatusOr<std::shared_ptr<const MappedEntry>> Begin(CacheHeader header);
  // Adds `begun` to the cache with the header of what was written to it, which
  // may have fewer samples, and maps it again. Blocks.
  //   DATA_LOSS           the file could not be read
  //   RESOURCE_EXHAUSTED  as Begin, if it has to be written again
  //   CANCELLED           `is_cancelled` was set
  absl::StatusOr<std::shared_ptr<const MappedEntry>> Finish(
      std::shared_ptr<const MappedEntry> begun, CacheHeader header,
      const std::atomic<bool>& is_cancelled);
  // Maps the entry of these samples and checks every block. Blocks.
  //   NOT_FOUND    there is none, or it has other samples
  //   DATA_LOSS    it is damaged
  //   UNAVAILABLE  the disk failed
  //   CANCELLED    `is_cancelled` was set
  absl::StatusOr<std::shared_ptr<const MappedEntry>> Map(
      const std::string& spec_id, const std::string& content_hash,
      const std::atomic<bool>& is_cancelled);

  // Blocks until the writer is not the last owner of any dataset.
  void AwaitReleased();
  // Blocks until everything given to Store is done; false after `timeout`.
  bool AwaitIdle(absl::Duration timeout);
  // Likewise, for pushed datasets alone, which nothing else can make again.
  bool AwaitPushes(absl::Duration timeout);

  const Counters& counters() const { return counters_; }
  int64_t limit_bytes() const;
  int64_t used_bytes() const;
  int num_entries() const;

 private:
  struct Job {
    CacheHeader header;
    Backend* backend = nullptr;
    std::weak_ptr<const Dataset> dataset;
  };
  static bool IsPush(const Job& job) {
    return job.header.owner_uid.has_value();
  }

  DatasetCache(std::unique_ptr<StoreDirectory> directory, Observer observer)
      : directory_(std::move(directory)), observer_(std::move(observer)) {}

  absl::Status Scan(CacheIndex::Limits limits);
  std::unique_ptr<CachedSource> OpenEntry(const std::string& spec_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // REQUIRES: the entry is there.
  absl::StatusOr<std::shared_ptr<const MappedEntry>> MapUnchecked(
      const std::string& spec_id, CacheHeader* header)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds a pinned entry without a file, which counts until it is removed from
  // the index. Returns its id. REQUIRES: there is room.
  std::string TakeRoom(uint32_t uid, int64_t size_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the file that was written under a temporary name, unless the entry is
  // there by now.
  absl::Status AddWritten(const std::string& temporary,
                          const std::string& spec_id, uint32_t uid,
                          int64_t size_bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does nothing if the entry was replaced by one of another generation.
  void Unpin(const std::string& spec_id, uint64_t generation,
             const MappedFile& file);
  // Returns whose it was.
  uint32_t RemoveEntry(const std::string& spec_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells why the entry could not be read, and removes it if it is to blame.
  void ReportUnread(const std::string& spec_id, const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Evict(const std::vector<std::string>& spec_ids)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first one of the user whose last turn is the longest ago.
  Job TakeJob() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunStores();
  void StoreNow(const Job& job);
  void Report(const char* event, uint32_t uid, const std::string& name,
              const absl::Status& status);

  const std::unique_ptr<StoreDirectory> directory_;
  const Observer observer_;
  Counters counters_;
  std::atomic<bool> is_stopping_ = false;

  CopyGate copy_gate_;
  mutable Mutex mutex_;
  CacheIndex index_ ABSL_GUARDED_BY(mutex_);
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  // By user: the number of the last store. Of users in jobs_.
  std::map<uint32_t, uint64_t> last_turns_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_turns_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_storing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_storing_push_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CACHE_DATASET_CACHE_H_
