// The feeds of the daemon, from OpenFeed to the last byte given back.
//
//   pending    made by OpenFeed; nothing is produced
//   attached   its lease connection is open; the producer fills it
//   ending     the lease has ended; the producer finishes what runs, and memory
//              is being freed
//   lingering  nothing runs any more, but the client's process may still use
//              the slab: it stays, charged to its user, until the client says
//              DETACHED or its process is gone; then the feed is ending again
//
// A pending feed ends when its session does or its deadline passes. All but
// the slab is freed before `lingering`. Memory is freed on a thread of its own
// and without a lock, since that may take long; the feed is listed, and its
// memory charged, until it is done.
//
// Thread-safe. Lock order: this table, then the registry's or the quota's.

#ifndef DATASETD_SERVER_FEED_FEED_TABLE_H_
#define DATASETD_SERVER_FEED_FEED_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "cuda/device/backend.h"
#include "server/dataset/caller.h"
#include "server/dataset/device_table.h"
#include "server/dataset/per_user_limit.h"
#include "server/feed/client_order.h"
#include "server/feed/feed_channel.h"
#include "server/feed/feed_explanation.h"
#include "server/feed/feed_info.h"
#include "server/feed/feed_options.h"
#include "server/feed/feed_plan.h"
#include "server/feed/feed_quota.h"
#include "server/feed/opened_feed.h"
#include "server/feed/producer.h"
#include "server/feed/reaper.h"
#include "server/pipeline/ops/transform_limits.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

class FeedTable {
 public:
  struct Options {
    size_t max_feeds = 1024;
    PerUserLimit max_feeds_per_user;
    absl::Duration attach_timeout = absl::Seconds(10);
    // Empty: what the backend likes best.
    std::vector<ExportKind> allowed_exports;
    TransformLimits transform_limits;
  };
  using Observer = std::function<void(const char* event, const FeedInfo& info)>;

  // All outlive the table. `on_device_failure` as Producer::Start.
  static absl::StatusOr<std::unique_ptr<FeedTable>> Create(
      Options options, DeviceTable* devices, DatasetRegistry* datasets,
      FeedChannelFactory make_channel, const Clock* clock, Observer observer,
      std::function<void(absl::Status)> on_device_failure);
  // Ends all feeds and gives their memory up, for the end of the process. What
  // clients still use stays valid for them, where a process's end allows it: a
  // slab that was exported by CUDA IPC handle is left to that end.
  ~FeedTable();

  // Errors as FeedService.OpenFeed.
  absl::StatusOr<OpenedFeed> Open(const FeedOptions& options,
                                  const Caller& caller);

  // What the ops of a feed with these options draw for samples in an epoch.
  // Errors as FeedService.ExplainTransforms.
  absl::StatusOr<Explanation> Explain(const FeedOptions& options,
                                      uint64_t epoch,
                                      absl::Span<const uint64_t> indices,
                                      const Caller& caller);

  // pending -> attached. The descriptors are the table's, valid until the
  // lease ends. NOT_FOUND if there is no such feed, or it is not the session's,
  // or not pending.
  absl::StatusOr<std::vector<int>> Attach(uint64_t feed_id,
                                          uint64_t session_id);

  // Appends to the client's order of a feed that is pending or attached.
  // Errors as ClientOrder::Append, and
  //   NOT_FOUND            no such feed, or not the session's
  //   FAILED_PRECONDITION  its order is the daemon's
  absl::Status SendIndices(uint64_t feed_id, uint64_t session_id,
                           const ClientOrder::Block& block);

  // attached -> ending: the lease connection has ended.
  void EndLease(uint64_t feed_id);

  // The client's process uses the slab no more: it said so, or is gone. What it
  // keeps all the same is taken from it, where that can be.
  void FreeSlab(uint64_t feed_id);

  // Ends the session's pending feeds.
  void EndSession(uint64_t session_id);
  // Ends pending feeds whose time is over.
  void ExpirePending();

  // Ends the pending feeds of a dataset, or all when null, and returns the
  // attached ones, whose leases the caller ends.
  std::vector<uint64_t> DropPending(const Dataset* dataset);

  // Waits until no feed is `ending`, at most `timeout`: then its dataset counts
  // as unused, and its memory is given back.
  void AwaitEnded(absl::Duration timeout) const;

  // Feeds of datasets that the caller may see, by id: those behind `after`,
  // `limit` at most.
  std::vector<FeedInfo> List(const Caller& caller = Caller(),
                             uint64_t after = 0, size_t limit = SIZE_MAX) const;
  size_t num_feeds() const;
  // By device.
  std::map<std::string, FeedTotals> Totals() const;

  // For the watchdog, by device: see producer.h.
  void PingProducers();
  std::map<std::string, ProducerProgress> ProducersProgress() const;

 private:
  struct Record;
  enum class SlabUse : uint8_t {
    kUsed,    // the client may use it
    kUnused,  // the client is done with it
    kLeft,    // the client may use it, and the daemon ends
  };

  FeedTable(Options options, DeviceTable* devices, DatasetRegistry* datasets,
            FeedChannelFactory make_channel, const Clock* clock,
            Observer observer);
  // A feed with its memory; its use and place are left to set. Not locked.
  absl::StatusOr<std::unique_ptr<Record>> MakeRecord(uint64_t id,
                                                     const FeedOptions& options,
                                                     const Caller& owner,
                                                     const DatasetUse& use,
                                                     const FeedPlan& plan);
  static void FreeMemory(std::unique_ptr<ExportedMemory> slab, SlabUse use);
  // Nobody asks for the slab any more.
  void GiveUpSlab(uint64_t feed_id, SlabUse use);
  // Ends the pending feeds that satisfy `predicate`; `event` may be null.
  void EndPending(const char* event,
                  absl::FunctionRef<bool(const Record&)> predicate)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The feed is `ending` now. REQUIRES: it was not.
  void BeginEnd(Record& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has the reaper free the feed's memory. REQUIRES: it is `ending`, and
  // nothing of it runs.
  void Free(uint64_t feed_id);
  // On the reaper's thread: to `lingering`, or to the feed's end.
  void FreeNow(uint64_t feed_id);
  FeedInfo InfoOf(const Record& record) const;

  const Options options_;
  DeviceTable* const devices_;
  DatasetRegistry* const datasets_;
  const FeedChannelFactory make_channel_;
  const Clock* const clock_;
  const Observer observer_;
  // Before the records, which have places in it.
  FeedQuota quota_;

  mutable Mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Record>> records_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int num_ending_ ABSL_GUARDED_BY(mutex_) = 0;
  // By device: feeds opened, and the rest of those that have ended.
  std::map<std::string, FeedTotals> ended_ ABSL_GUARDED_BY(mutex_);
  // Last, so that the threads end before what they use.
  Reaper reaper_;
  std::map<std::string, std::unique_ptr<Producer>> producers_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_TABLE_H_
