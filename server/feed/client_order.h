// An order that the client makes: batches of sample indices, sent ahead in
// blocks, that wait for the producer.
//
// A block appends batches. One with a higher generation is a seek: it begins
// anywhere, and what was sent before and not taken is dropped.
//
// Append may be called from any thread, all else is for the producer's. The
// producer never waits: a block that is being appended is not there yet, so
// wake the producer after every Append, whatever it returned. Allocates in the
// constructor only.

#ifndef DATASETD_SERVER_FEED_CLIENT_ORDER_H_
#define DATASETD_SERVER_FEED_CLIENT_ORDER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "server/feed/feed_position.h"

namespace datasetd {

class ClientOrder {
 public:
  // A batch must fit a message.
  static constexpr int64_t kMaxBatchSize = 1 << 18;

  struct Options {
    int64_t num_samples = 0;  // of the dataset
    int64_t batch_size = 0;   // the most rows of a batch; 1..kMaxBatchSize
    uint32_t capacity = 0;    // batches that may wait
    // Row p of this rank's epoch is row rank + p * world_size of all ranks'.
    int64_t rank = 0;
    int64_t world_size = 1;
    FeedPosition start;
  };

  struct Block {
    uint64_t generation = 0;  // of the feed; the first is 0
    FeedPosition start;       // of the first batch
    uint64_t first_row = 0;   // rows of the epoch before it
    absl::Span<const uint32_t> batch_sizes;
    absl::Span<const int64_t> indices;  // of all batches
  };

  struct Batch {
    FeedPosition position;
    int64_t first_row = 0;  // in the epoch of all ranks
    int64_t num_samples = 0;
  };

  // Taken by the constructor.
  static int64_t SizeBytes(const Options& options);

  explicit ClientOrder(const Options& options);

  // All of the block, or nothing of it.
  //   OUT_OF_RANGE         the dataset has no such sample
  //   INVALID_ARGUMENT     sizes, or the block does not go on where the last
  //                        one ended (or begin a later epoch)
  //   FAILED_PRECONDITION  an older generation
  //   RESOURCE_EXHAUSTED   more than `capacity` batches would wait
  absl::Status Append(const Block& block);

  // The newest one that was sent.
  uint64_t generation() const { return generation_.load(); }
  bool HasNext() const { return num_waiting_.load() > 0; }
  // Takes the next batch if it is of this generation, and writes its rows to
  // the first of `indices`, whose size is at least batch_size. False if there
  // is none, or Append is just running.
  bool Take(uint64_t generation, absl::Span<int64_t> indices, Batch* batch);

 private:
  absl::Status Check(const Block& block) const;

  const Options options_;
  Mutex mutex_;
  std::atomic<uint64_t> generation_ = 0;   // changes under mutex_
  std::atomic<uint32_t> num_waiting_ = 0;  // likewise
  uint32_t first_ ABSL_GUARDED_BY(mutex_) = 0;
  // What may come next, or batch 0 of a later epoch.
  FeedPosition next_ ABSL_GUARDED_BY(mutex_);
  // A ring of `capacity`.
  std::vector<Batch> batches_ ABSL_GUARDED_BY(mutex_);
  // [capacity, batch_size]
  std::vector<uint32_t> rows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_CLIENT_ORDER_H_
