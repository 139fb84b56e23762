// Both ends of a feed's ring: all accesses to the shared pages and their order.
// See Note [Wake-ups] in docs/ring.md.
//
// The classes are templates over the atomic type so that tests/ring can explore
// the interleavings of this code. They make no system calls; a return value
// tells the caller when to make one.
//
// Not thread-safe: each end has one caller at a time, except that any thread
// may call CompleteRelease and RequestRelease for a batch that it owns.

#ifndef DATASETD_PROTO_RING_PROTOCOL_H_
#define DATASETD_PROTO_RING_PROTOCOL_H_

#include <cstdint>
#include <optional>

#include "proto/feed_ring.h"

namespace datasetd::ring {

struct SeekRequest {
  uint64_t generation;
  uint64_t epoch;
  uint64_t batch;
};

template <template <typename> class Atomic>
class BasicDaemonRing {
 public:
  // The pages must outlive the ring. REQUIRES: `daemon` is zeroed and not
  // shared yet; num_slots is in 1..kMaxSlots.
  BasicDaemonRing(BasicDaemonPage<Atomic>* daemon,
                  const BasicClientPage<Atomic>* client, uint32_t num_slots)
      : daemon_(daemon), client_(client), num_slots_(num_slots) {
    daemon_->magic = kMagic;
    daemon_->version = kVersion;
    daemon_->num_slots = num_slots;
    daemon_->state.store(static_cast<uint32_t>(FeedState::kServing),
                         std::memory_order_seq_cst);
  }

  // Publishes a slot. Returns true if the caller must wake the futex
  // `wake_word()`. REQUIRES: descriptor.sequence is the last published one plus
  // 1, and the slot is free and filled.
  [[nodiscard]] bool Publish(uint32_t slot, const SlotDescriptor& descriptor) {
    daemon_->slots[slot] = descriptor;
    daemon_->published[descriptor.sequence % num_slots_].store(
        PackPublished(descriptor.sequence, slot), std::memory_order_seq_cst);
    daemon_->wake.fetch_add(1, std::memory_order_seq_cst);
    return IsClientWaiting();
  }

  // True if the client has released `sequence` in this slot; its device may
  // still use the memory.
  bool IsReleaseRequested(uint32_t slot, uint64_t sequence) const {
    return client_->release_requested[slot].load(std::memory_order_seq_cst) ==
           sequence;
  }

  // Returns the raw word. The slot is free if it equals the published sequence;
  // other values are ignored and counted.
  uint64_t ReleaseDone(uint32_t slot) const {
    return client_->release_done[slot].load(std::memory_order_seq_cst);
  }

  // True if the client waits for a batch. If it begins to while the daemon is
  // idle, a wake-up follows.
  bool IsClientWaiting() const {
    return client_->waiting.load(std::memory_order_seq_cst) != 0;
  }

  // Returns a seek that was not read before. Returns nullopt while the client
  // is writing one; a wake-up follows then. The values are untrusted.
  std::optional<SeekRequest> ReadSeek() {
    const uint64_t generation =
        client_->seek_generation.load(std::memory_order_seq_cst);
    if (generation == seen_generation_) return std::nullopt;
    const uint64_t epoch = client_->seek_epoch.load(std::memory_order_seq_cst);
    const uint64_t batch = client_->seek_batch.load(std::memory_order_seq_cst);
    if (client_->seek_begun.load(std::memory_order_seq_cst) != generation) {
      return std::nullopt;
    }
    seen_generation_ = generation;
    return SeekRequest{generation, epoch, batch};
  }

  // Before sleeping, call SetIdle(true) and check every ring once more. After
  // waking, call SetIdle(false).
  void SetIdle(bool idle) {
    daemon_->idle.store(idle ? 1 : 0, std::memory_order_seq_cst);
  }

  // Ends publication. The caller must wake the futex.
  void Close() {
    daemon_->state.store(static_cast<uint32_t>(FeedState::kClosed),
                         std::memory_order_seq_cst);
    daemon_->wake.fetch_add(1, std::memory_order_seq_cst);
  }

  uint64_t waited_nanoseconds() const {
    return client_->waited_nanoseconds.load(std::memory_order_relaxed);
  }
  Atomic<uint32_t>* wake_word() { return &daemon_->wake; }

 private:
  BasicDaemonPage<Atomic>* const daemon_;
  const BasicClientPage<Atomic>* const client_;
  const uint32_t num_slots_;
  uint64_t seen_generation_ = 0;
};

template <template <typename> class Atomic>
class BasicClientRing {
 public:
  // The pages must outlive the ring. REQUIRES: magic and version of the daemon
  // page were checked; num_slots is the feed's, in 1..kMaxSlots, whatever the
  // page says later.
  BasicClientRing(const BasicDaemonPage<Atomic>* daemon,
                  BasicClientPage<Atomic>* client, uint32_t num_slots)
      : daemon_(daemon), client_(client), num_slots_(num_slots) {}

  // Returns the slot of `sequence`, or nullopt if it is not published yet.
  std::optional<uint32_t> Poll(uint64_t sequence) const {
    const uint64_t word = daemon_->published[sequence % num_slots_].load(
        std::memory_order_seq_cst);
    if (PublishedSequence(word) != sequence) return std::nullopt;
    return PublishedSlot(word);
  }

  // REQUIRES: Poll returned `slot`, which is not released yet.
  const SlotDescriptor& descriptor(uint32_t slot) const {
    return daemon_->slots[slot];
  }

  bool IsClosed() const {
    return daemon_->state.load(std::memory_order_seq_cst) !=
           static_cast<uint32_t>(FeedState::kServing);
  }

  // Call before the futex wait, then call Poll and IsClosed once more. If both
  // are negative, wait for the wake word to differ from *word. Returns true if
  // the caller must write the eventfd before it waits.
  [[nodiscard]] bool BeginWait(uint32_t* word) {
    *word = daemon_->wake.load(std::memory_order_seq_cst);
    client_->waiting.store(1, std::memory_order_seq_cst);
    return daemon_->idle.load(std::memory_order_seq_cst) != 0;
  }
  void EndWait() { client_->waiting.store(0, std::memory_order_seq_cst); }
  const Atomic<uint32_t>* wake_word() const { return &daemon_->wake; }

  // The word to which a stream memory operation writes the sequence.
  Atomic<uint64_t>* release_done_word(uint32_t slot) {
    return &client_->release_done[slot];
  }

  // Marks the slot free from the CPU, after the last use has completed.
  void CompleteRelease(uint32_t slot, uint64_t sequence) {
    client_->release_done[slot].store(sequence, std::memory_order_seq_cst);
  }

  // Call after CompleteRelease, or after enqueueing the device write of the
  // word. Returns true if the caller must write the eventfd.
  [[nodiscard]] bool RequestRelease(uint32_t slot, uint64_t sequence) {
    // Another thread may have released the slot with a later sequence
    // meanwhile; the later one is kept.
    Atomic<uint64_t>& requested = client_->release_requested[slot];
    uint64_t last = requested.load(std::memory_order_seq_cst);
    while (last < sequence && !requested.compare_exchange_weak(
                                  last, sequence, std::memory_order_seq_cst)) {
    }
    return daemon_->idle.load(std::memory_order_seq_cst) != 0;
  }

  // Returns true if the caller must write the eventfd. REQUIRES: generation is
  // the last one plus 1.
  [[nodiscard]] bool Seek(const SeekRequest& request) {
    client_->seek_begun.store(request.generation, std::memory_order_seq_cst);
    client_->seek_epoch.store(request.epoch, std::memory_order_seq_cst);
    client_->seek_batch.store(request.batch, std::memory_order_seq_cst);
    client_->seek_generation.store(request.generation,
                                   std::memory_order_seq_cst);
    return daemon_->idle.load(std::memory_order_seq_cst) != 0;
  }

  void AddWaited(uint64_t nanoseconds) {
    client_->waited_nanoseconds.fetch_add(nanoseconds,
                                          std::memory_order_relaxed);
  }

  uint32_t num_slots() const { return num_slots_; }

 private:
  const BasicDaemonPage<Atomic>* const daemon_;
  BasicClientPage<Atomic>* const client_;
  const uint32_t num_slots_;
};

using DaemonRing = BasicDaemonRing<RingAtomic>;
using ClientRing = BasicClientRing<RingAtomic>;

}  // namespace datasetd::ring

#endif  // DATASETD_PROTO_RING_PROTOCOL_H_
