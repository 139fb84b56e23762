// The client's end of one feed: lease, ring, slab, and who holds which slot.
//
// Feed, every Batch and every DLPack tensor share it. It counts references: one
// of the feed until Close, one of every held slot. When the last is gone it
// waits for the device, unmaps, says DETACHED and deletes itself.
//
// A slot is held from Next until the last of its holders drops it: the batch,
// and every tensor made of it. See Note [Slot release].
//
// Thread-safety: Next, Seek and Close are for one thread at a time; all else is
// for any thread. In a child of fork() Next and Seek fail, and dropping does
// nothing.
//
// Cost: Next and Drop of a ready batch make no system call and allocate nothing
// (but for waking a daemon that sleeps: one write).

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

// Of a batch's streams: the one given to Next and those that were recorded.
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

  // The caller owns the feed's reference and gives it back by Close.
  static FeedCore* Create(Parts parts);

  FeedCore(const FeedCore&) = delete;
  FeedCore& operator=(const FeedCore&) = delete;

  // The next batch, held for the caller as holder batch_holder(). `stream` is
  // the one that will use it. Errors as Feed::Next.
  absl::StatusOr<BatchInfo> Next(uint64_t stream, absl::Duration timeout);

  // Errors as Feed::Seek.
  absl::Status Seek(uint64_t epoch, uint64_t batch);
  // As FeedCursor's, for what is sent of a client's order.
  uint64_t generation() const { return cursor_.generation(); }
  void AddSent(uint64_t num_batches) { cursor_.AddSent(num_batches); }
  void LoseOrder() { cursor_.LoseOrder(); }
  absl::Status CheckOrder() const { return cursor_.CheckOrder(); }
  // Why the lease has ended, if it has; else `status`. For the thread that
  // calls Next. Waits up to `timeout` for the daemon's word.
  absl::Status ExplainedByLease(const absl::Status& status,
                                absl::Duration timeout);

  // Gives up the feed's reference. The object may be gone afterwards.
  void Close();

  // A holder is a field's index, num_fields() for the indices, or
  // batch_holder(). Hold REQUIRES that the slot is held by the caller.
  void Hold(uint32_t slot, uint32_t holder);
  void Drop(uint32_t slot, uint32_t holder);
  uint32_t batch_holder() const { return num_holders_ - 1; }

  // The slot is free only when `stream` is done with it, too. REQUIRES: held.
  // RESOURCE_EXHAUSTED beyond kMaxStreamsPerBatch.
  absl::Status RecordStream(uint32_t slot, uint64_t stream);

  // Copies from the slab, wherever it lies, and waits. REQUIRES: the slot that
  // `from` lies in is held.
  absl::Status CopyToHost(void* to, const void* from, size_t size_bytes) const;

  // A tensor of `field` that holds the slot until its deleter is called.
  // REQUIRES: the slot of `info` is held.
  DLManagedTensor* MakeTensor(const BatchInfo& info, uint32_t field);

  char* FieldData(uint32_t slot, const FieldLayout& field) const {
    return slab_.data() + slot * layout_.slot_stride_bytes() +
           field.offset_bytes;
  }
  const SlotLayout& layout() const { return layout_; }
  uint64_t batches_per_epoch() const { return cursor_.batches_per_epoch(); }
  DLDevice device() const;
  bool is_this_process() const { return fork_generation_ == ForkGeneration(); }
  // Spent in Next, waiting. For the thread that calls Next.
  absl::Duration waited() const { return waited_; }

 private:
  struct Slot {
    // Holders. The one who takes it from 1 to 0 releases the slot.
    std::atomic<uint32_t> references{0};
    // From Next until just before the daemon is told.
    std::atomic<bool> is_held{false};
    uint64_t sequence = 0;
    // The first is the one given to Next. Written by Next before the slot is
    // handed out, then guarded by mutex_.
    std::array<uint64_t, kMaxStreamsPerBatch> streams = {};
    int num_streams = 0;
  };
  // What a host function on a stream needs.
  struct HostRelease {
    FeedCore* core = nullptr;
    uint32_t slot = 0;
    uint64_t sequence = 0;
  };

  explicit FeedCore(Parts parts);
  ~FeedCore() = default;

  absl::StatusOr<BatchInfo> Take(uint32_t slot, uint64_t stream,
                                 bool* is_stale);
  absl::Status Wait(absl::Time deadline);
  absl::Status WaitStep(absl::Time deadline, bool* is_done);
  absl::Status Fail(absl::Status status);
  bool NoSlotComesBack();
  absl::Status AllHeldError() const;

  void ReleaseSlot(uint32_t slot);
  int ReleasePending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TryRelease(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellDevice(uint32_t slot, uint64_t stream, uint64_t sequence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake();
  // Whether Next waits; then every release wakes the daemon.
  void SetWaiting(bool is_waiting);
  void Unreference(int count);
  void Destroy();

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

  // Of the thread that calls Next.
  uint64_t next_sequence_ = 1;
  FeedCursor cursor_;
  absl::Status failure_;
  absl::Duration waited_;

  std::atomic<int> references_{1};
  std::atomic<uint32_t> num_held_{0};
  std::array<Slot, ring::kMaxSlots> slots_;
  std::unique_ptr<std::atomic<uint32_t>[]> holders_;  // [slots, holders]
  std::unique_ptr<FieldTensor[]> tensors_;            // [slots, fields + 1]

  // Not absl::Mutex: Debian's looks for deadlocks at every lock, and
  // ThreadSanitizer does not see into it.
  std::mutex mutex_;
  // Bit s: slot s has no holder and the daemon is not told yet.
  uint64_t pending_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> has_pending_{false};
  // Released while the daemon slept, which was not woken for them.
  uint32_t num_untold_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_waiting_ ABSL_GUARDED_BY(mutex_) = false;
  std::array<HostRelease, ring::kMaxSlots> host_releases_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_FEED_CORE_H_
