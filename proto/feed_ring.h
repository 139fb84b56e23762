// The two shared pages of a feed: the data plane between daemon and client.
//
// DaemonPage is written by the daemon and mapped read-only by the client (the
// memfd is sealed against any other mapping). ClientPage is written by the
// client and untrusted: the daemon reads each word once into a local variable
// and checks its range.
//
// Path of a batch: the daemon fills a free slot, waits until its own work on it
// has completed, writes the slot's descriptor, then stores published[s %
// num_slots] = PackPublished(s, slot) for the next sequence s (the first is 1)
// with release order. The client that waits for s finds it there. To give the
// slot back, the client has s written to release_done[slot] when the last use
// of the batch has completed (on a GPU, a stream writes it), and, without
// waiting for that, stores s in release_requested[slot]. The slot is free when
// release_done[slot] equals the sequence published in it.
//
// For waiting see docs/ring.md, Note [Wake-ups].
//
// The Atomic parameter is std::atomic in the product; the model checker of
// tests/ring passes a type that explores interleavings.

#ifndef DATASETD_PROTO_FEED_RING_H_
#define DATASETD_PROTO_FEED_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace datasetd::ring {

inline constexpr uint32_t kMagic = 0x31524644;  // "DFR1"
inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kMaxSlots = 64;

// Number of low bits of a published word, which hold the slot.
inline constexpr uint32_t kSlotBits = 8;

constexpr uint64_t PackPublished(uint64_t sequence, uint32_t slot) {
  return (sequence << kSlotBits) | slot;
}
constexpr uint64_t PublishedSequence(uint64_t word) {
  return word >> kSlotBits;
}
constexpr uint32_t PublishedSlot(uint64_t word) {
  return static_cast<uint32_t>(word & ((1u << kSlotBits) - 1));
}

enum class FeedState : uint32_t {
  kServing = 1,
  // The daemon publishes no more batches. GOODBYE on the lease connection tells
  // why.
  kClosed = 2,
};

// Contents of a published slot. Not atomic: ordered by the published word, and
// constant until the client releases the slot.
struct SlotDescriptor {
  uint64_t sequence;
  uint64_t generation;  // number of the last seek before it; 0: none
  uint64_t epoch;
  uint64_t batch;  // within the epoch, of this rank
  uint32_t num_samples;
  uint32_t num_padding;  // the last rows of the batch
  uint64_t reserved[3];
};

template <template <typename> class Atomic>
struct alignas(4096) BasicDaemonPage {
  // Written before the page is shared.
  uint32_t magic;
  uint32_t version;
  uint32_t num_slots;
  uint32_t reserved;

  // The client's futex. Changes with every publication and state change.
  alignas(64) Atomic<uint32_t> wake;
  // FeedState.
  alignas(64) Atomic<uint32_t> state;
  // 1 while the daemon sleeps or is about to: after a change of the client
  // page, the eventfd must then be written.
  alignas(64) Atomic<uint32_t> idle;
  alignas(64) Atomic<uint64_t> published[kMaxSlots];
  alignas(64) SlotDescriptor slots[kMaxSlots];
};

template <template <typename> class Atomic>
struct alignas(4096) BasicClientPage {
  // Indexed by slot; never decreases.
  Atomic<uint64_t> release_requested[kMaxSlots];
  // Eight bytes each, naturally aligned, for stream memory operations.
  alignas(64) Atomic<uint64_t> release_done[kMaxSlots];

  // A seek writes its generation (the previous one plus 1) to seek_begun, then
  // the position, then the generation to seek_generation. A position read
  // belongs to seek_generation only if seek_begun, read afterwards, is equal to
  // it.
  alignas(64) Atomic<uint64_t> seek_generation;
  Atomic<uint64_t> seek_epoch;
  Atomic<uint64_t> seek_batch;
  Atomic<uint64_t> seek_begun;

  // 1 while the client is in, or about to enter, the futex wait.
  alignas(64) Atomic<uint32_t> waiting;
  // Total time spent waiting for batches.
  alignas(64) Atomic<uint64_t> waited_nanoseconds;
};

template <typename T>
using RingAtomic = std::atomic<T>;
using DaemonPage = BasicDaemonPage<RingAtomic>;
using ClientPage = BasicClientPage<RingAtomic>;

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint64_t>) == 8);
static_assert(sizeof(SlotDescriptor) == 64);
static_assert(sizeof(DaemonPage) == 8192);
static_assert(offsetof(DaemonPage, wake) == 64);
static_assert(offsetof(DaemonPage, state) == 128);
static_assert(offsetof(DaemonPage, idle) == 192);
static_assert(offsetof(DaemonPage, published) == 256);
static_assert(offsetof(DaemonPage, slots) == 768);
static_assert(sizeof(ClientPage) == 4096);
static_assert(offsetof(ClientPage, release_requested) == 0);
static_assert(offsetof(ClientPage, release_done) == 512);
static_assert(offsetof(ClientPage, seek_generation) == 1024);
static_assert(offsetof(ClientPage, seek_begun) == 1048);
static_assert(offsetof(ClientPage, waiting) == 1088);
static_assert(offsetof(ClientPage, waited_nanoseconds) == 1152);

}  // namespace datasetd::ring

#endif  // DATASETD_PROTO_FEED_RING_H_
