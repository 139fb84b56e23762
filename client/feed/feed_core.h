// The client's end of one feed: lease, ring, slab, and the holders of slots.
//
// Shared by the Feed, every Batch and every DLPack tensor. Reference-counted:
// the feed has one reference until Close, every held slot has one. When the
// last is dropped it unmaps, sends DETACHED and deletes itself: at once on the
// host; on a GPU on the thread of feed_closer.h, once the GPU has released
// every batch. If the CUDA context of this process fails, that never happens:
// slab and lease stay until the process ends.
//
// A slot is held from Next until its last holder drops it. Holders are the
// batch and every tensor made from it. See Note [Slot release].
//
// Thread-safety: Next, Seek, SetWeights and Close are for one thread at a time;
// everything else is thread-safe. In a child of fork() the first three fail,
// and Drop does nothing.
//
// Cost: Next and Drop of a ready batch allocate nothing and make no system
// call, except for one write to wake a sleeping daemon.

#ifndef DATASETD_CLIENT_FEED_FEED_CORE_H_
#define DATASETD_CLIENT_FEED_FEED_CORE_H_

#include <dlpack/dlpack.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection/guarded_fd.h"
#include "client/connection/lease.h"
#include "client/feed/feed_cursor.h"
#include "client/feed/field_tensor.h"
#include "client/feed/ring_pages.h"
#include "client/feed/slab.h"
#include "client/feed/slot_layout.h"
#include "proto/ring_protocol.h"

namespace datasetd::client {

// Streams of a batch: the one given to Next and those recorded.
inline constexpr int kMaxStreamsPerBatch = 8;

struct BatchInfo {
  uint64_t sequence = 0;
  uint64_t epoch = 0;
  uint64_t batch = 0;  // within the epoch
  uint32_t slot = 0;
  uint32_t num_samples = 0;
  uint32_t num_padding = 0;  // the last rows
};

class FeedCore {
 public:
  struct Parts {
    Lease lease;
    GuardedFd event;
    RingPages pages;
    Slab slab;
    SlotLayout layout;
    FeedCursor::Options cursor;
  };

  // The caller owns the feed's reference and drops it by Close.
  static FeedCore* Create(Parts parts);

  FeedCore(const FeedCore&) = delete;
  FeedCore& operator=(const FeedCore&) = delete;

  // Returns the next batch, held by holder batch_holder(), for use on `stream`.
  // Errors as Feed::Next.
  absl::StatusOr<BatchInfo> Next(uint64_t stream, absl::Duration timeout);

  // Errors as Feed::Seek.
  absl::Status Seek(uint64_t epoch, uint64_t batch);
  // Errors as Feed::SetWeights. `weights` is a sealed array.
  absl::Status SetWeights(const GuardedFd& weights, const CallLimits& limits);
  // For client_order, and for the thread that calls Next.
  FeedCursor& cursor() { return cursor_; }
  // Returns why the lease has ended, if it has, else `status`. Blocks up to
  // `timeout` for the daemon's message. For the thread that calls Next.
  absl::Status ExplainedByLease(const absl::Status& status,
                                absl::Duration timeout);

  // Drops the feed's reference, which may delete this object.
  void Close();

  // A holder is a field's index, num_fields() for the indices, or
  // batch_holder(). Hold REQUIRES that the caller holds the slot.
  void Hold(uint32_t slot, uint32_t holder);
  void Drop(uint32_t slot, uint32_t holder);
  uint32_t batch_holder() const { return num_holders_ - 1; }

  // Makes the slot's release wait for `stream`, too, which may be of another
  // GPU; 0 and 1 (CU_STREAM_LEGACY) are the default stream of the feed's GPU.
  // REQUIRES: the slot is held, and the stream lives as long.
  //   INVALID_ARGUMENT    the stream is CU_STREAM_PER_THREAD
  //   RESOURCE_EXHAUSTED  beyond kMaxStreamsPerBatch
  absl::Status RecordStream(uint32_t slot, uint64_t stream);

  // Copies from the slab, on host or device, and blocks until done. REQUIRES:
  // the slot that contains `from` is held.
  absl::Status CopyToHost(void* to, const void* from, size_t size_bytes) const;

  // Returns a tensor of `field` that holds the slot until its deleter is
  // called. REQUIRES: the slot of `info` is held.
  DLManagedTensor* MakeTensor(const BatchInfo& info, uint32_t field);
  // Returns a tensor that owns a copy of `field`. REQUIRES: the slot of `info`
  // is held, and the device is the host.
  DLManagedTensor* CopyTensor(const BatchInfo& info, uint32_t field) const;

  char* FieldData(uint32_t slot, const FieldLayout& field) const {
    return slab_.data() + slot * layout_.slot_stride_bytes() +
           field.offset_bytes;
  }
  const SlotLayout& layout() const { return layout_; }
  DLDevice device() const;
  bool is_this_process() const { return fork_generation_ == ForkGeneration(); }
  // Total time that Next has waited. For the thread that calls Next.
  absl::Duration waited() const { return waited_; }
  // Number of slots from Next until their release was requested.
  uint32_t num_held() const {
    return num_held_.load(std::memory_order_relaxed);
  }

 private:
  struct Slot {
    // Number of holders. The thread that takes it from 1 to 0 releases the
    // slot.
    std::atomic<uint32_t> references{0};
    // True from Next until just before the daemon is notified.
    std::atomic<bool> is_held{false};
    uint64_t sequence = 0;
    // The first one was given to Next. Written by Next before the slot is
    // returned, then guarded by mutex_.
    std::array<uint64_t, kMaxStreamsPerBatch> streams = {};
    int num_streams = 0;
  };
  // Argument of a host function on a stream.
  struct HostRelease {
    FeedCore* core = nullptr;
    uint32_t slot = 0;
    uint64_t sequence = 0;
  };

  explicit FeedCore(Parts parts);
  ~FeedCore() = default;

  absl::StatusOr<BatchInfo> Take(uint32_t slot, uint64_t stream,
                                 bool* is_stale);
  absl::Status Wait(absl::Duration deadline);
  absl::Status WaitStep(absl::Duration deadline, bool* is_done);
  absl::Status Fail(absl::Status status);
  absl::Status CheckSlotComesBack();
  absl::Status AllHeldError(uint32_t num_captured) const;

  void ReleaseSlot(uint32_t slot);
  int ReleasePending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryRelease(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TellDevice(uint32_t slot, uint64_t stream, uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error of a slot that is lost, as `stream` did not take its release.
  absl::Status NotGivenBack(uint64_t stream, const absl::Status& error) const;
  // Returns why a batch could not be released, if one could not.
  absl::Status CheckDevice();
  // Tries again until nothing is pending, if the feed is closed: no caller
  // comes any more.
  void RetryIfClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RetryPending();
  void Wake();
  // While Next waits, every release wakes the daemon.
  void SetWaiting(bool is_waiting);
  void Unreference(int count);
  void Destroy();
  // False while the GPU may use the slab or the page. Deletes this object
  // otherwise.
  bool TryDelete();
  void Delete();

  static void DeleteTensor(DLManagedTensor* tensor);
  static void CompleteOnHost(void* release);

  const uint64_t fork_generation_;
  const SlotLayout layout_;
  const uint32_t num_holders_;
  Lease lease_;
  GuardedFd event_;
  RingPages pages_;
  Slab slab_;
  ring::ClientRing ring_;

  // The next four are for the thread that calls Next.
  uint64_t next_sequence_ = 1;
  FeedCursor cursor_;
  absl::Status failure_;
  absl::Duration waited_;

  std::atomic<int> references_{1};
  std::atomic<uint32_t> num_held_{0};
  std::array<Slot, ring::kMaxSlots> slots_;
  std::unique_ptr<std::atomic<uint32_t>[]> holders_;  // [slots, holders]
  std::unique_ptr<FieldTensor[]> tensors_;            // [slots, fields + 1]

  // Not absl::Mutex: Debian's checks for deadlocks at every lock, and is not
  // instrumented for ThreadSanitizer.
  std::mutex mutex_;
  // Bit s: slot s has no holder, and the daemon is not notified yet.
  uint64_t pending_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> has_pending_{false};
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_retrying_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status device_failure_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_device_failed_{false};
  // Number of slots released while the daemon slept, without waking it.
  uint32_t num_untold_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  std::array<HostRelease, ring::kMaxSlots> host_releases_;
  // In the list of those that stay until the process ends.
  FeedCore* next_kept_ = nullptr;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_FEED_CORE_H_
