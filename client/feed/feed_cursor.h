// Where a feed is in its order: which batch is due next, in which generation,
// and whether there is one to come at all.
//
// The order is the daemon's, which has no end; or the client's, which ends
// where what was sent of it ends. Not thread-safe: of the thread that calls
// Next.

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

  uint64_t batches_per_epoch() const { return batches_per_epoch_; }
  // The batch that is due.
  uint64_t epoch() const { return epoch_; }
  uint64_t batch() const { return batch_; }
  // Of the last seek. What was made for an earlier one is stale.
  uint64_t generation() const { return generation_; }
  // With a client's order: batches that were sent, and not handed out.
  uint64_t num_sent() const { return num_sent_; }

  bool IsDue(uint64_t epoch, uint64_t batch) const;
  // Behind a batch that is handed out. REQUIRES: IsDue(epoch, batch).
  void Pass(uint64_t epoch, uint64_t batch);

  // Makes another batch the one that is due, in a generation of its own. True
  // if the daemon is to be told now: not if that batch is due anyway, nor with
  // a client's order, where the next block that is sent says it.
  //   INVALID_ARGUMENT  no epoch has such a batch, or no feed such an epoch
  absl::StatusOr<bool> Seek(uint64_t epoch, uint64_t batch);

  // So many batches of a client's order are with the daemon.
  void AddSent(uint64_t num_batches) { num_sent_ += num_batches; }
  // The daemon may have got more than it said: what comes behind the batches
  // that were sent is not known, until Seek.
  void LoseOrder() { is_order_lost_ = true; }
  // FAILED_PRECONDITION if it is lost.
  absl::Status CheckOrder() const;

  // FAILED_PRECONDITION if no batch can come, however long one waits.
  absl::Status CheckMoreComes() const;

 private:
  const uint64_t batches_per_epoch_;
  const bool has_client_order_;
  uint64_t epoch_;
  uint64_t batch_;
  uint64_t generation_ = 0;
  uint64_t num_sent_ = 0;
  bool is_order_lost_ = false;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_FEED_CURSOR_H_
