// The feeds of the daemon, from OpenFeed to the last byte given back.
//
//   pending    made by OpenFeed; nothing is produced
//   attached   its lease connection is open; the producer fills it
//   ending     the lease has ended; the producer finishes what runs
//   lingering  nothing runs any more, but the client's process may still use
//              the slab: it stays, charged to its user, until the client says
//              DETACHED or its process is gone
//
// A pending feed goes when its session ends or its deadline passes. All but
// the slab is freed on entering `lingering`.
//
// Thread-safe. Lock order: this table, then the registry's.

#ifndef DATASETD_SERVER_CORE_FEED_TABLE_H_
#define DATASETD_SERVER_CORE_FEED_TABLE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/core/client_order.h"
#include "server/core/clock.h"
#include "server/core/dataset_registry.h"
#include "server/core/device_table.h"
#include "server/core/feed.h"
#include "server/core/explain.h"
#include "server/core/feed_channel.h"
#include "server/core/feed_fields.h"
#include "server/core/latency_histogram.h"
#include "server/core/mutex.h"
#include "server/core/producer.h"
#include "server/core/slot_layout.h"

namespace datasetd {

struct FeedOptions {
  std::string name;  // for people
  std::string dataset;
  std::string device;  // empty: the dataset's
  int64_t batch_size = 0;
  bool shuffle = false;
  uint64_t seed = 0;
  bool drop_last = false;
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t prefetch = 0;  // 0: chosen
  FeedPosition start;
  // Of a batch, in its order; empty: all of the dataset.
  std::vector<std::string> field_names;
  std::map<std::string, FeedFieldOptions> fields;
  std::vector<ExportKind> excluded_exports;
  // Sample indices; nothing: all samples.
  std::optional<std::vector<int64_t>> subset;
  // The client makes the order: SendIndices.
  bool has_client_order = false;
  bool draws_by_sample = false;
};

// What the ops of a feed draw for some samples.
struct Explanation {
  struct Sample {
    int64_t index = 0;
    std::vector<OpDraw> ops;
  };
  std::vector<Sample> samples;
  // OpDraw::field to its name.
  std::vector<std::string> fields;
};

// What OpenFeed answers.
struct OpenedFeed {
  uint64_t id = 0;
  SlotLayout layout;
  uint32_t num_slots = 0;
  uint64_t slab_bytes = 0;
  ExportKind export_kind = ExportKind::kMemfd;
  std::vector<uint8_t> ipc_handle;
  std::string device;
  std::array<uint8_t, 16> uuid = {};
  uint64_t batches_per_epoch = 0;
  int64_t num_samples = 0;  // that the feed draws from
  std::string content_hash;
  std::string transforms_hash;
  uint32_t prefetch = 0;
  uint32_t order_capacity = 0;  // of a client's order: batches
};

enum class FeedPhase { kPending, kAttached, kEnding, kLingering };

struct FeedInfo {
  uint64_t id = 0;
  std::string name;
  std::string dataset;
  std::string device;
  Caller owner;
  FeedPhase phase = FeedPhase::kPending;
  int64_t batch_size = 0;
  int64_t rank = 0;
  int64_t world_size = 1;
  uint64_t seed = 0;
  uint64_t slab_bytes = 0;
  uint32_t num_slots = 0;
  // Of FeedStats.
  FeedPosition next;
  uint64_t num_batches = 0;
  uint64_t num_samples = 0;
  uint32_t num_slots_held = 0;
  uint64_t num_ignored_releases = 0;
  uint64_t num_ignored_seeks = 0;
  uint64_t num_launches = 0;
  double client_wait_seconds = 0;  // said by the client; no more than its age
  double daemon_wait_seconds = 0;
};

// What became of the feeds of one device, those that have ended included.
struct FeedTotals {
  uint64_t num_opened = 0;
  uint64_t num_batches = 0;
  uint64_t num_samples = 0;
  uint64_t num_ignored_releases = 0;
  uint64_t num_ignored_seeks = 0;
  double client_wait_seconds = 0;  // said by the clients
  double daemon_wait_seconds = 0;
  uint64_t num_throttled_wakes = 0;
  LatencyHistogram::Snapshot hand_over;
};

class FeedTable {
 public:
  struct Options {
    size_t max_feeds = 1024;
    size_t max_feeds_per_user = 0;  // 0: no limit
    absl::Duration attach_timeout = absl::Seconds(10);
    // Empty: what the backend likes best.
    std::vector<ExportKind> allowed_exports;
  };
  using Observer = std::function<void(const char* event, const FeedInfo& info)>;

  // All outlive the table. `on_device_failure` as Producer::Start.
  static absl::StatusOr<std::unique_ptr<FeedTable>> Create(
      Options options, DeviceTable* devices, DatasetRegistry* datasets,
      FeedChannelFactory make_channel, const Clock* clock, Observer observer,
      std::function<void(absl::Status)> on_device_failure);
  // Ends all feeds and frees their memory, whatever clients hold: for the end
  // of the process.
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

  // The client's process uses the slab no more: it said so, or is gone.
  void FreeSlab(uint64_t feed_id);

  // Frees the session's pending feeds.
  void EndSession(uint64_t session_id);
  // Frees pending feeds whose time is over.
  void ExpirePending();

  // Frees the pending feeds of a dataset, or all when null, and returns the
  // attached ones, whose leases the caller ends.
  std::vector<uint64_t> DropPending(const Dataset* dataset);

  // Waits until no feed is `ending`, at most `timeout`: then its dataset counts
  // as unused, and its memory is given back.
  void AwaitEnded(absl::Duration timeout) const;

  // Uids that have feeds of a dataset.
  std::vector<uint32_t> UidsOf(const std::string& dataset) const;

  std::vector<FeedInfo> List() const;
  size_t num_feeds() const;
  // By device.
  std::map<std::string, FeedTotals> Totals() const;

  // For the watchdog, by device: see producer.h.
  void PingProducers();
  std::map<std::string, ProducerProgress> ProducersProgress() const;

 private:
  struct Record;

  FeedTable(Options options, DeviceTable* devices, DatasetRegistry* datasets,
            FeedChannelFactory make_channel, const Clock* clock,
            Observer observer);
  absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateSlab(
      Backend& backend, size_t size_bytes,
      const std::vector<ExportKind>& excluded);
  absl::Status CheckLimits(uint32_t uid) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnRemoved(uint64_t feed_id);
  static void AddTo(const FeedInfo& info, FeedTotals* totals);
  FeedInfo InfoOf(const Record& record) const;

  const Options options_;
  DeviceTable* const devices_;
  DatasetRegistry* const datasets_;
  const FeedChannelFactory make_channel_;
  const Clock* const clock_;
  const Observer observer_;

  mutable Mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Record>> records_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int num_ending_ ABSL_GUARDED_BY(mutex_) = 0;
  // Feeds that Open is making, by uid.
  std::map<uint32_t, size_t> num_opening_ ABSL_GUARDED_BY(mutex_);
  // By device: feeds opened, and the rest of those that have ended.
  std::map<std::string, FeedTotals> ended_ ABSL_GUARDED_BY(mutex_);
  // Last, so that the threads end before what they use.
  std::map<std::string, std::unique_ptr<Producer>> producers_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_FEED_TABLE_H_
