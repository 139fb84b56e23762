// The endless, ordered sequence of batches of one feed, and the state of its
// slots.
//
// A slot is free, running (a launch fills it) or published (the client may use
// it). Batches are launched and published in order, each published only after
// its launch has completed. A slot becomes free again when the client releases
// the sequence number that is published in it. A seek starts a new generation:
// running batches of the old generation are dropped when they complete, and
// published ones stay valid until the client releases them.
//
// Owns all memory of the feed. Allocates only in Create, but for weights that
// replace others. Not thread-safe,
// except for stats(): one Producer drives it. REQUIRES for destruction:
// is_quiescent(), or the stream was synchronized.

#ifndef DATASETD_SERVER_FEED_FEED_H_
#define DATASETD_SERVER_FEED_FEED_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/backend/backend.h"
#include "proto/feed_ring.h"
#include "proto/ring_protocol.h"
#include "server/dataset/dataset.h"
#include "server/feed/feed_channel.h"
#include "server/feed/latency_histogram.h"
#include "server/feed/scratch_pool.h"
#include "server/feed/stager.h"
#include "server/order/client_order.h"
#include "server/order/sampler.h"

namespace datasetd {

// Counters; readable from any thread while the feed runs.
struct FeedStats {
  std::atomic<uint64_t> next_epoch = 0;
  std::atomic<uint64_t> next_batch = 0;
  std::atomic<uint64_t> num_batches = 0;  // published
  std::atomic<uint64_t> num_samples = 0;
  std::atomic<uint64_t> num_launches = 0;
  std::atomic<uint32_t> num_slots_held = 0;
  std::atomic<uint64_t> num_ignored_releases = 0;
  std::atomic<uint64_t> num_ignored_seeks = 0;
  // Time during which the client held every slot.
  std::atomic<uint64_t> daemon_wait_nanoseconds = 0;
  // Of each batch, the time from the start of its launch to its publication.
  LatencyHistogram hand_over;
};

class Feed {
 public:
  // About how long Launch takes for the order of its batches, at most: the
  // table of an epoch, or tens of thousands of rows. All feeds of the device
  // wait for that long.
  static constexpr int64_t kMaxOrderNanoseconds = 2'000'000;

  struct Options {
    uint64_t id = 0;
    uint32_t uid = 0;  // the user charged for device time
    std::shared_ptr<const Dataset> dataset;
    // The device that the feed runs on, one of the dataset's; null: its first.
    Backend* backend = nullptr;
    // The dataset's fields of a batch.
    std::vector<size_t> sources;
    // Of a window of samples, which are read where the row's index says; 1: the
    // sample alone.
    int64_t window_steps = 1;
    // Of each row (params.h); 0: there are none. Excludes an order of the
    // client and staging.
    int64_t row_entries = 0;
    // Where samples are copied to that device for each batch.
    StagingPlan staging;
    // With sources, unless samples are staged, and offsets set. Create frees
    // it.
    std::unique_ptr<AugmentProgram> program;
    // Of a mixture whose parts have ops of their own: these make the rows that
    // `program` does not.
    std::vector<std::unique_ptr<AugmentProgram>> other_programs;
    // Estimated operations per sample; 0 if unknown: launches are not split.
    int64_t sample_operations = 0;
    // With a client's order, only batch_size is used.
    SamplerOptions sampler;
    // Null: the order is the sampler's.
    std::shared_ptr<ClientOrder> order;
    // With a client's order, random ops are seeded by sample index, not by the
    // position in the epoch. With weights, groups, or ratios of a mixture,
    // always by the position.
    bool draws_by_sample = false;
    uint32_t num_slots = 0;  // 2..64
    uint64_t slot_stride_bytes = 0;
    FeedPosition start;  // of an epoch, and at most its end
    // Scratch memory and stream of the program's chains. Empty: the feed has
    // its own.
    ScratchPool::Lease scratch;
  };

  // `slab` holds num_slots slots. See Backend::CreateStream for `on_done`.
  static absl::StatusOr<std::unique_ptr<Feed>> Create(
      Options options, std::unique_ptr<ExportedMemory> slab,
      std::unique_ptr<FeedChannel> channel, std::function<void()> on_done);
  ~Feed();

  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  uint64_t id() const { return options_.id; }
  uint32_t uid() const { return options_.uid; }
  const Dataset& dataset() const { return *options_.dataset; }
  const Backend& backend() const { return *options_.backend; }
  const ExportedMemory& slab() const { return *slab_; }
  FeedChannel& channel() { return *channel_; }
  // As the client reports it. Any thread may ask.
  uint64_t client_wait_nanoseconds() const {
    return channel_->waited_nanoseconds();
  }
  const FeedStats& stats() const { return stats_; }
  // 0 with a client's order.
  uint64_t batches_per_epoch() const { return batches_per_epoch_; }

  // Reads the client's releases and seeks. Returns true if something changed.
  bool Scan(uint64_t now_nanoseconds);

  // Publishes completed batches. Returns the number of launches that ended,
  // counting each part of a split launch. An error means that the device
  // failed: publish nothing more.
  absl::StatusOr<int> Collect();

  // True if Launch would start work, or return the dataset's error. On a GPU a
  // feed whose client has batches enough waits until a third of its slots is
  // free, since a launch there takes the trainers' turn.
  bool CanLaunch() const;
  // When the feed stops gathering free slots, by MonotonicNanoseconds; nullopt
  // if it gathers none. A Scan after that makes CanLaunch true.
  std::optional<uint64_t> gathers_until() const;

  // Starts one launch that fills up to `max_batches` free slots, with as many
  // batches as kMaxOrderNanoseconds suffice for. A launch that exceeds the
  // backend's max_launch_operations is split: each call starts the next part
  // after the previous one has ended. Returns false if nothing was started:
  // either the order of the first batch takes more than that and
  // has_partial_order(), so that the next call continues; or the client is
  // still sending its order, and wakes the producer afterwards. DATA_LOSS if
  // the dataset cannot be read any more: what was launched before is not
  // published. REQUIRES: CanLaunch().
  absl::StatusOr<bool> Launch(int max_batches);
  // True if the next batch is known in part.
  bool has_partial_order() const { return has_part_; }

  // Computes ahead of time the order of the epoch that begins next. Returns
  // true if there was work to do.
  bool PrepareNextEpoch();

  // Draws by these weights, which are finished and of the same samples, from
  // the next seek on; of seeks that the client has made before, none has them.
  // Instead of freeing weights that are no longer used, which may take long,
  // gives them to `discard`. REQUIRES: the feed is weighted.
  void SetWeights(
      std::shared_ptr<const WeightTable> weights,
      std::function<void(std::shared_ptr<const WeightTable>)> discard);

  // Stops production and tells the client. Running launches are cancelled if
  // the backend supports it, then collected and dropped.
  void Stop();

  // True if no launch of this feed is running.
  bool is_quiescent() const { return num_running_launches_ == 0; }
  // The largest size of a batch.
  int64_t batch_bytes() const {
    return static_cast<int64_t>(options_.slot_stride_bytes);
  }
  // Empty on the host, and without chains.
  const ScratchPool::Lease& scratch() const { return options_.scratch; }
  // True if the client requested a release that its device has not completed.
  bool has_pending_release() const { return has_pending_release_; }

  // Memory that a feed takes for its launches.
  static int64_t LaunchBytes(int64_t num_slots) {
    return num_slots * static_cast<int64_t>(sizeof(PendingLaunch));
  }
  // Memory that a feed on `backend` takes for the indices of its batches.
  static int64_t IndexBytes(const Backend& backend, int64_t num_slots,
                            int64_t batch_size, bool is_staged);

  // The same for their entries, of which a batch has so many.
  static int64_t EntryBytes(const Backend& backend, int64_t num_slots,
                            int64_t batch_entries);

  // Frees everything but the slab, and returns the slab. REQUIRES:
  // is_quiescent().
  std::unique_ptr<ExportedMemory> TakeSlab();

 private:
  enum class SlotState : uint8_t { kFree, kRunning, kPublished };
  struct Slot {
    SlotState state = SlotState::kFree;
    uint64_t sequence = 0;      // the published sequence
    uint64_t last_release = 0;  // the client's last release
  };
  struct PendingBatch {
    uint32_t slot = 0;
    ring::SlotDescriptor batch = {};
  };
  // A batch of the order; its slot is free while rows are missing.
  struct Part {
    uint32_t slot = 0;
    int32_t num_rows_taken = 0;
    absl::Span<int64_t> indices;
    int64_t* entries = nullptr;  // of all rows
    BatchTask task = {};
    ring::SlotDescriptor batch = {};
  };
  struct PendingLaunch {
    std::unique_ptr<Event> event;
    uint64_t generation = 0;
    uint64_t started_nanoseconds = 0;
    int num_batches = 0;
    PendingBatch batches[kMaxBatchesPerLaunch];
  };

  Feed(Options options, std::unique_ptr<ExportedMemory> slab,
       std::unique_ptr<FeedChannel> channel);
  absl::Status Augment(absl::Span<const BatchTask> tasks);
  void FindMappedFields(const std::vector<size_t>& sources);
  void SetNext(FeedPosition position);
  // Begins the next batch of the order, for `slot` and with its indices in row
  // `row`; false if there is none.
  bool BeginPart(uint32_t slot, uint32_t row);
  // Takes rows of that batch while *nanoseconds last, some at least; true if
  // these were the last ones.
  bool TakeRows(int64_t* nanoseconds);
  // Whether the next batch takes no longer than `nanoseconds`.
  bool IsNextWithin(int64_t nanoseconds) const;
  // Begins to read the samples of a mapped file, all at once. Returns about how
  // long that takes.
  int64_t Prefetch(absl::Span<const int64_t> indices) const;
  // Decides whether to wait for more free slots. Returns true if it no longer
  // does. num_pending: slots whose release is requested and not done.
  bool UpdateGathering(uint64_t now_nanoseconds, size_t num_pending);
  // Counts an invalid request and returns false.
  bool TakeSeek(const ring::SeekRequest& seek);
  absl::StatusOr<bool> LaunchNext(int max_batches);
  // Takes batches and slots for a launch. Returns false if there are none.
  bool TakeBatches(int max_batches, PendingLaunch& launch, BatchTask* tasks);
  // Where the indices are not read where they were written: copies them to the
  // device, all at once, and lets the tasks name the copies.
  absl::Status CopyIndices(absl::Span<BatchTask> tasks);
  // Starts the next part of a split launch: copies samples, or augments them.
  absl::Status LaunchPart(PendingLaunch& launch);
  absl::Status AugmentRest(PendingLaunch& launch);
  Stream& stream() const {
    return own_stream_ != nullptr ? *own_stream_ : *options_.scratch.stream();
  }
  bool IsDropped(const PendingLaunch& launch) const {
    return is_stopped_ || launch.generation != generation_;
  }
  uint8_t* SlotData(uint32_t slot) const;
  absl::Span<int64_t> IndexRow(uint32_t row) const;

  const Options options_;
  std::unique_ptr<ExportedMemory> slab_;
  std::unique_ptr<FeedChannel> channel_;
  std::unique_ptr<Sampler> sampler_;  // null with a client's order
  // int64 [rows, batch_size]. On the host, row i is slot i's. Else the batches
  // of a launch have consecutive rows from next_row_ on, until it has ended;
  // there are twice as many rows as slots, so that those at the beginning are
  // free when the end is reached.
  std::unique_ptr<HostMemory> indices_;
  uint32_t next_row_ = 0;
  // The rows of the stream's last launch; null on the host. Of the last two, in
  // turn, where samples are staged while the launch before runs. Not in the
  // slots: the client can write there.
  std::unique_ptr<DeviceMemory> device_indices_;
  // The same for the entries of rows, [rows, batch_size, row_entries]; null if
  // there are none.
  std::unique_ptr<HostMemory> entries_;
  std::unique_ptr<DeviceMemory> device_entries_;
  std::unique_ptr<DeviceMemory> own_scratch_;  // null with a lease or no chain
  std::unique_ptr<Stager> stager_;  // null if samples are read in place
  // Fields of the dataset whose samples are worth reading ahead; empty without
  // a mapped file.
  std::vector<size_t> mapped_fields_;
  std::vector<std::unique_ptr<LoadedProgram>> programs_;
  std::unique_ptr<Stream> own_stream_;  // null with a lease
  uint64_t batches_per_epoch_ = 0;

  std::vector<Slot> slots_;
  uint32_t num_free_ = 0;
  uint32_t num_published_ = 0;
  // True while free slots wait for others, to be filled by one launch.
  bool is_gathering_ = false;
  uint64_t last_launch_nanoseconds_ = 0;  // when it began
  uint64_t gather_end_nanoseconds_ = 0;   // as of the last Scan or Launch
  // A ring buffer: [first_launch_, first_launch_ + num_running_launches_).
  std::vector<PendingLaunch> launches_;
  int first_launch_ = 0;
  int num_running_launches_ = 0;
  // Maximum rows of a launch; 0: unlimited.
  int64_t max_launch_rows_ = 0;
  // True if the last launch has rows that are not started. At most one of its
  // parts is running.
  bool has_rest_ = false;
  bool is_part_running_ = false;
  // The batches of that launch: from first_row on, of a single one.
  std::vector<BatchTask> rest_;

  FeedPosition next_;
  // Of the next seek; null: those before.
  std::shared_ptr<const WeightTable> next_weights_;
  std::function<void(std::shared_ptr<const WeightTable>)> discard_weights_;
  // The next batch, if has_part_.
  Part part_;
  bool has_part_ = false;
  int64_t row_nanoseconds_ = 0;  // of the order, without Prefetch
  uint64_t prepared_epoch_ = 0;
  uint64_t generation_ = 0;
  uint64_t last_sequence_ = 0;
  bool is_stopped_ = false;
  bool has_pending_release_ = false;
  // Time of the previous Scan; the time since then was spent waiting if
  // is_waiting_.
  uint64_t waiting_since_nanoseconds_ = 0;
  bool is_waiting_ = false;
  FeedStats stats_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_H_
