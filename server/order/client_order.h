// The queue of batches that a client with its own sample order sends ahead.
//
// A block appends batches of sample indices. A block with a higher generation
// is a seek: it may start anywhere, and batches that were sent before and not
// yet taken are dropped.
//
// Append may be called from any thread; everything else is for the producer's
// thread. The producer never waits for the lock: it does not see a block that
// is still being appended, so wake the producer after every Append, even a
// failed one. Allocates only in the constructor.

#ifndef DATASETD_SERVER_ORDER_CLIENT_ORDER_H_
#define DATASETD_SERVER_ORDER_CLIENT_ORDER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "server/order/sampler.h"

namespace datasetd {

class ClientOrder {
 public:
  // A batch of this size fits in one message.
  static constexpr int64_t kMaxBatchSize = 1 << 18;

  struct Options {
    int64_t num_samples = 0;  // in the dataset
    int64_t batch_size = 0;   // maximum rows of a batch; 1..kMaxBatchSize
    int64_t group_size = 1;   // a batch has a multiple of so many rows
    uint32_t capacity = 0;    // maximum number of waiting batches
    // Row p of this rank's epoch is row rank + p * world_size of the global
    // epoch.
    int64_t rank = 0;
    int64_t world_size = 1;
    FeedPosition start;
  };

  struct Block {
    uint64_t generation = 0;  // of the feed; starts at 0
    FeedPosition start;       // of the first batch
    uint64_t first_row = 0;   // rows of the epoch before the first batch
    absl::Span<const uint32_t> batch_sizes;
    absl::Span<const int64_t> indices;  // of all batches, concatenated
  };

  struct Batch {
    FeedPosition position;
    int64_t first_row = 0;  // in the global epoch
    int64_t num_samples = 0;
  };

  // Memory that the constructor allocates.
  static int64_t SizeBytes(const Options& options);

  explicit ClientOrder(const Options& options);

  // Appends the whole block or nothing.
  //   OUT_OF_RANGE         an index is not in the dataset
  //   INVALID_ARGUMENT     wrong sizes, or the block neither continues the last
  //                        one nor starts a later epoch
  //   FAILED_PRECONDITION  an older generation
  //   RESOURCE_EXHAUSTED   more than `capacity` batches would wait
  absl::Status Append(const Block& block);

  // The newest generation received.
  uint64_t generation() const { return generation_.load(); }
  bool HasNext() const { return num_waiting_.load() > 0; }
  // Takes the next batch if it has this generation, and writes its rows to the
  // start of `indices`, whose size is at least batch_size. Returns false if
  // there is none or if Append is running.
  bool Take(uint64_t generation, absl::Span<int64_t> indices, Batch* batch);

 private:
  absl::Status Check(const Block& block) const;

  const Options options_;
  Mutex mutex_;
  std::atomic<uint64_t> generation_ = 0;   // changes under mutex_
  std::atomic<uint32_t> num_waiting_ = 0;  // changes under mutex_
  uint32_t first_ ABSL_GUARDED_BY(mutex_) = 0;
  // Expected position of the next batch; batch 0 of a later epoch is also
  // valid.
  FeedPosition next_ ABSL_GUARDED_BY(mutex_);
  // A ring buffer of `capacity` batches.
  std::vector<Batch> batches_ ABSL_GUARDED_BY(mutex_);
  // [capacity, batch_size]
  std::vector<uint32_t> rows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_CLIENT_ORDER_H_
