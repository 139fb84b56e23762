// The channel between the producer and a feed's client: batches are published
// one way, releases and seeks come back.
//
// Production uses the shared-memory ring (server/attach/ring_channel.h); tests
// use an in-memory channel. Not thread-safe, except for descriptors(): used on
// the producer's thread.

#ifndef DATASETD_SERVER_FEED_FEED_CHANNEL_H_
#define DATASETD_SERVER_FEED_FEED_CHANNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/feed_ring.h"
#include "proto/ring_protocol.h"

namespace datasetd {

class FeedChannel {
 public:
  virtual ~FeedChannel() = default;

  // Hands the slot to the client. REQUIRES: the slot is free and filled, and
  // batch.sequence is the previous one plus 1; the first is 1.
  virtual void Publish(uint32_t slot, const ring::SlotDescriptor& batch) = 0;

  // True if the client asks to release the slot that holds `sequence`; its
  // device may still be using the slot.
  virtual bool IsReleaseRequested(uint32_t slot, uint64_t sequence) const = 0;
  // The last sequence that the client released in this slot. The slot is free
  // if it equals the published sequence.
  virtual uint64_t ReleaseDone(uint32_t slot) const = 0;

  // True if the client waits for a batch. If it begins to while the producer is
  // idle, it writes wake_descriptor().
  virtual bool IsClientWaiting() const = 0;

  // Returns each seek once; it is not validated.
  virtual std::optional<ring::SeekRequest> ReadSeek() = 0;

  // While the producer is idle, the client writes wake_descriptor() after every
  // change.
  virtual void SetIdle(bool idle) = 0;
  virtual int wake_descriptor() const = 0;

  // Ends publishing and wakes waiting clients.
  virtual void Close() = 0;

  // As reported by the client; not verified. Thread-safe.
  virtual uint64_t waited_nanoseconds() const = 0;

  // The descriptors passed to the client at attach, in the order of
  // attach_protocol.h; owned by the channel.
  virtual absl::Span<const int> descriptors() const = 0;
};

using FeedChannelFactory =
    std::function<absl::StatusOr<std::unique_ptr<FeedChannel>>(
        uint32_t num_slots)>;

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_CHANNEL_H_
