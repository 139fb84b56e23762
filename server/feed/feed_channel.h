// A feed's way to its client: what the producer publishes and what the client
// says back. The product's channel is the shared-memory ring
// (server/attach/ring_channel.h); tests use one in memory.
//
// Not thread-safe: used by the producer's thread, but for descriptors().

#ifndef DATASETD_SERVER_FEED_FEED_CHANNEL_H_
#define DATASETD_SERVER_FEED_FEED_CHANNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace datasetd {

struct PublishedBatch {
  uint64_t sequence = 0;  // 1, 2, ...
  uint64_t generation = 0;
  uint64_t epoch = 0;
  uint64_t batch = 0;
  uint32_t num_samples = 0;
  uint32_t num_padding = 0;
};

// A client's word, unchecked.
struct SeekRequest {
  uint64_t generation = 0;
  uint64_t epoch = 0;
  uint64_t batch = 0;
};

class FeedChannel {
 public:
  virtual ~FeedChannel() = default;

  // Hands the slot to the client. REQUIRES: batch.sequence is the last one
  // plus 1; the slot is filled, and free.
  virtual void Publish(uint32_t slot, const PublishedBatch& batch) = 0;

  // The client asks to give back the slot that holds `sequence`, but its device
  // may still use it.
  virtual bool IsReleaseRequested(uint32_t slot, uint64_t sequence) const = 0;
  // The sequence that the client says it has done with in this slot; the slot
  // is free if that equals the one published in it.
  virtual uint64_t ReleaseDone(uint32_t slot) const = 0;

  // Each seek once.
  virtual std::optional<SeekRequest> ReadSeek() = 0;

  // While idle, the client writes wake_descriptor() after every change.
  virtual void SetIdle(bool idle) = 0;
  virtual int wake_descriptor() const = 0;

  // Nothing is published any more; waiting clients wake up.
  virtual void Close() = 0;

  // Said by the client.
  virtual uint64_t waited_nanoseconds() const = 0;

  // What the client gets at attach, in the order of attach_protocol.h; owned
  // by the channel.
  virtual absl::Span<const int> descriptors() const = 0;
};

using FeedChannelFactory =
    std::function<absl::StatusOr<std::unique_ptr<FeedChannel>>(
        uint32_t num_slots)>;

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_CHANNEL_H_
