// One job's ordered, endless sequence of batches: which batch goes to which
// slot, and what has become of it.
//
// A slot is free, running (a launch fills it), or published (the client may
// use it). Batches are launched in order and published in order, each only
// after its launch has completed; a slot is free again when the client's
// release names the very sequence published in it. A seek starts a new
// generation: what runs for the old one is dropped when it completes, what was
// published stays the client's until it releases it.
//
// Not thread-safe: driven by one Producer, but for stats(). Allocates in
// Create only. Owns all memory of the feed. Destroy it only when
// is_quiescent(), or after its stream was synchronized.

#ifndef DATASETD_SERVER_FEED_FEED_H_
#define DATASETD_SERVER_FEED_FEED_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/device/backend.h"
#include "server/dataset/dataset.h"
#include "server/feed/client_order.h"
#include "server/feed/feed_channel.h"
#include "server/feed/feed_position.h"
#include "server/feed/latency_histogram.h"
#include "server/feed/sampler.h"

namespace datasetd {

// Counters, readable from any thread while the feed runs.
struct FeedStats {
  std::atomic<uint64_t> next_epoch = 0;
  std::atomic<uint64_t> next_batch = 0;
  std::atomic<uint64_t> num_batches = 0;  // published
  std::atomic<uint64_t> num_samples = 0;
  std::atomic<uint64_t> num_launches = 0;
  std::atomic<uint32_t> num_slots_held = 0;
  std::atomic<uint64_t> num_ignored_releases = 0;
  std::atomic<uint64_t> num_ignored_seeks = 0;
  std::atomic<uint64_t> client_wait_nanoseconds = 0;
  // Every slot was with the client.
  std::atomic<uint64_t> daemon_wait_nanoseconds = 0;
};

class Feed {
 public:
  struct Options {
    uint64_t id = 0;
    uint32_t uid = 0;  // who pays for the work
    std::shared_ptr<const Dataset> dataset;
    // Sources and offsets are set.
    AugmentProgram program = {};
    // Estimated, of one sample; 0: not known, and launches are not cut.
    int64_t sample_operations = 0;
    // With a client's order its batch_size only.
    SamplerOptions sampler;
    // Null: the sampler's order.
    std::shared_ptr<ClientOrder> order;
    // Rows of a client's order draw by sample index, not by their place in the
    // epoch.
    bool draws_by_sample = false;
    uint32_t num_slots = 0;  // 2..64
    uint64_t slot_stride_bytes = 0;
    FeedPosition start;
    // Of every batch: from the start of its launch to its publication. Outlives
    // the feed; may be null.
    LatencyHistogram* hand_over = nullptr;
  };

  // `slab` holds num_slots slots. `on_done` as in Backend::CreateStream.
  static absl::StatusOr<std::unique_ptr<Feed>> Create(
      Options options, std::unique_ptr<ExportedMemory> slab,
      std::unique_ptr<FeedChannel> channel, std::function<void()> on_done);
  ~Feed();

  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  uint64_t id() const { return options_.id; }
  uint32_t uid() const { return options_.uid; }
  const Dataset& dataset() const { return *options_.dataset; }
  const ExportedMemory& slab() const { return *slab_; }
  FeedChannel& channel() { return *channel_; }
  const FeedStats& stats() const { return stats_; }
  // 0 with a client's order.
  uint64_t batches_per_epoch() const { return batches_per_epoch_; }

  // Reads what the client said: frees slots, takes a seek. True if something
  // changed.
  bool Scan(uint64_t now_nanoseconds);

  // Publishes what has completed; the number of launches that ended, each part
  // of one that is cut counted. An error is the device's: publish nothing more.
  absl::StatusOr<int> Collect();

  // True if a Launch would start work.
  bool CanLaunch() const;
  // Starts one launch that fills up to `max_batches` free slots. A launch that
  // would take more than the backend's max_launch_operations is cut: each call
  // starts the next part, when the one before has ended. False if there was
  // none to start: the client is just sending its order, and wakes the producer
  // afterwards. REQUIRES: CanLaunch().
  absl::StatusOr<bool> Launch(int max_batches);

  // Makes the next epoch's order ahead of time; true if there was work to do.
  bool PrepareNextEpoch();

  // Production ends; the client is told. What runs is cut short where the
  // backend can, collected and dropped.
  void Stop();

  // No launch of this feed is running.
  bool is_quiescent() const { return num_running_launches_ == 0; }
  // What a batch takes, at most.
  int64_t batch_bytes() const {
    return static_cast<int64_t>(options_.slot_stride_bytes);
  }
  int num_running_launches() const { return num_running_launches_; }
  // The client has requested a release that its device has not done yet.
  bool has_pending_release() const { return has_pending_release_; }

  // Gives up all but the slab. REQUIRES: is_quiescent().
  std::unique_ptr<ExportedMemory> TakeSlab();

 private:
  enum class SlotState : uint8_t { kFree, kRunning, kPublished };
  struct Slot {
    SlotState state = SlotState::kFree;
    uint64_t sequence = 0;      // when published
    uint64_t last_release = 0;  // the client's last word
  };
  struct PendingBatch {
    uint32_t slot = 0;
    PublishedBatch batch;
  };
  struct PendingLaunch {
    std::unique_ptr<Event> event;
    uint64_t generation = 0;
    uint64_t started_nanoseconds = 0;
    int num_batches = 0;
    PendingBatch batches[kMaxBatchesPerLaunch];
    BatchTask rest = {};  // of a launch that is cut
  };

  Feed(Options options, std::unique_ptr<ExportedMemory> slab,
       std::unique_ptr<FeedChannel> channel);
  void SetNext(FeedPosition position);
  // The next batch of the order, for the slot; false if there is none.
  bool TakeNext(uint32_t slot, BatchTask* task, PublishedBatch* batch);
  // False if the request makes no sense; it is counted.
  bool TakeSeek(const SeekRequest& seek);
  // Batches for a launch, and their slots. False if there is none.
  bool TakeBatches(int max_batches, PendingLaunch& launch, BatchTask* tasks);
  // Starts what a launch that is cut may take next.
  absl::Status LaunchPart(PendingLaunch& launch);
  bool IsDropped(const PendingLaunch& launch) const {
    return is_stopped_ || launch.generation != generation_;
  }
  uint8_t* SlotData(uint32_t slot) const;
  int64_t* SlotIndices(uint32_t slot) const;

  const Options options_;
  std::unique_ptr<ExportedMemory> slab_;
  std::unique_ptr<FeedChannel> channel_;
  std::unique_ptr<Sampler> sampler_;       // null with a client's order
  std::unique_ptr<HostMemory> indices_;    // [num_slots, batch_size] int64
  std::unique_ptr<DeviceMemory> scratch_;  // of the program's chains, if any
  std::unique_ptr<LoadedProgram> program_;
  std::unique_ptr<Stream> stream_;
  uint64_t batches_per_epoch_ = 0;

  std::vector<Slot> slots_;
  uint32_t num_free_ = 0;
  uint32_t num_published_ = 0;
  // A ring: [first_launch_, first_launch_ + num_running_launches_).
  std::vector<PendingLaunch> launches_;
  int first_launch_ = 0;
  int num_running_launches_ = 0;
  // Of a launch; 0: any number.
  int64_t max_launch_rows_ = 0;
  // The last launch has rows that are not started; then one part of it runs, or
  // none.
  bool has_rest_ = false;
  bool is_part_running_ = false;

  FeedPosition next_;
  uint64_t prepared_epoch_ = 0;
  uint64_t generation_ = 0;
  uint64_t last_sequence_ = 0;
  bool is_stopped_ = false;
  bool has_pending_release_ = false;
  // When the last slot went to the client, or 0.
  uint64_t waiting_since_nanoseconds_ = 0;
  bool is_waiting_ = false;
  FeedStats stats_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_H_
