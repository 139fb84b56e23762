// A feed's position in its order: the next batch, its generation, and whether
// another batch can come.
//
// The daemon's order ends after epoch 2^32 - 1, a client's order after the
// batches sent so far. Not thread-safe: for the thread that calls Next.

#ifndef DATASETD_CLIENT_FEED_FEED_CURSOR_H_
#define DATASETD_CLIENT_FEED_FEED_CURSOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace datasetd::client {

class FeedCursor {
 public:
  struct Options {
    uint64_t batches_per_epoch = 0;
    uint64_t start_epoch = 0;
    uint64_t start_batch = 0;
    bool has_client_order = false;
  };
  explicit FeedCursor(const Options& options)
      : batches_per_epoch_(options.batches_per_epoch),
        has_client_order_(options.has_client_order),
        epoch_(options.start_epoch),
        batch_(options.start_batch) {}

  // Position of the batch that is due.
  uint64_t epoch() const { return epoch_; }
  uint64_t batch() const { return batch_; }
  // Number of the last seek. Batches of earlier generations are stale.
  uint64_t generation() const { return generation_; }
  // With client_order: number of batches sent but not yet returned.
  uint64_t num_sent() const { return num_sent_; }

  bool IsDue(uint64_t epoch, uint64_t batch) const;
  // Advances past a batch that is returned. REQUIRES: IsDue(epoch, batch).
  void Pass(uint64_t epoch, uint64_t batch);

  // Makes another batch due, in a new generation. Returns true if the daemon
  // must be told now: false if that batch is already due, or with client_order,
  // where the next block tells it.
  //   INVALID_ARGUMENT  the batch or the epoch is out of range
  absl::StatusOr<bool> Seek(uint64_t epoch, uint64_t batch);
  // Records that the daemon's order changes with the next seek, also with one
  // to the batch that is due.
  void ChangeOrder() { is_order_changed_ = true; }

  // Records that `num_batches` of a client's order were sent to the daemon.
  void AddSent(uint64_t num_batches) { num_sent_ += num_batches; }
  // Records that the daemon may have received unacknowledged batches: the order
  // after the batches sent is unknown until Seek.
  void LoseOrder() { is_order_lost_ = true; }
  // FAILED_PRECONDITION if the order is lost.
  absl::Status CheckOrder() const;

  // FAILED_PRECONDITION if no further batch can come.
  absl::Status CheckMoreComes() const;

 private:
  const uint64_t batches_per_epoch_;
  const bool has_client_order_;
  uint64_t epoch_;
  uint64_t batch_;
  uint64_t generation_ = 0;
  uint64_t num_sent_ = 0;
  bool is_order_lost_ = false;
  bool is_order_changed_ = false;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_FEED_CURSOR_H_
