#include "client/feed/feed_cursor.h"

#include "absl/strings/str_cat.h"
#include "client/connection/error_detail.h"

namespace datasetd::client {
namespace {

// The daemon's limit: an epoch is one word of the random counter.
constexpr uint64_t kMaxEpoch = 0xFFFFFFFFu;

}  // namespace

bool FeedCursor::IsDue(uint64_t epoch, uint64_t batch) const {
  if (epoch == epoch_ && batch == batch_) {
    return !has_client_order_ || num_sent_ > 0;
  }
  // With client_order the end of an epoch is known when it is sent.
  return has_client_order_ && num_sent_ > 0 && epoch > epoch_ && batch == 0;
}

void FeedCursor::Pass(uint64_t epoch, uint64_t batch) {
  epoch_ = epoch;
  batch_ = batch + 1;
  if (has_client_order_) {
    --num_sent_;
  } else if (batch_ >= batches_per_epoch_) {
    batch_ = 0;
    ++epoch_;
  }
}

absl::StatusOr<bool> FeedCursor::Seek(uint64_t epoch, uint64_t batch) {
  // The daemon ignores such a seek, and Next would never return.
  if (epoch > kMaxEpoch) {
    return absl::InvalidArgumentError(
        absl::StrCat("seek to epoch ", epoch, ": epochs are 0 to ", kMaxEpoch));
  }
  const bool is_due = epoch == epoch_ && batch == batch_;
  if (has_client_order_) {
    if (is_due && num_sent_ == 0 && !is_order_lost_) return false;
    num_sent_ = 0;
    is_order_lost_ = false;
  } else {
    if (batch > 0 && batch >= batches_per_epoch_) {
      return absl::InvalidArgumentError(
          absl::StrCat("seek to batch ", batch, ": an epoch of this feed has ",
                       batches_per_epoch_, " batches, counted from 0"));
    }
    if (is_due && !is_order_changed_) return false;
    is_order_changed_ = false;
  }
  epoch_ = epoch;
  batch_ = batch;
  ++generation_;
  return !has_client_order_;
}

absl::Status FeedCursor::CheckOrder() const {
  if (!is_order_lost_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the daemon did not say whether it took the last indices that were sent: "
      "seek to where the order continues, and send them again");
}

absl::Status FeedCursor::CheckMoreComes() const {
  if (has_client_order_) {
    if (num_sent_ > 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "every batch that was sent in the feed's client_order has come: send "
        "more indices");
  }
  if (batches_per_epoch_ == 0) {
    return WithDetail(
        absl::FailedPreconditionError(
            "the feed's epochs hold no batch: the dataset is smaller than one "
            "batch per rank and drop_last is on"),
        ErrorDetail::kNoBatches);
  }
  if (epoch_ > kMaxEpoch) {
    return absl::FailedPreconditionError(
        absl::StrCat("the feed's last epoch has ended: epochs are 0 to ",
                     kMaxEpoch, "; seek to one of them"));
  }
  return absl::OkStatus();
}

}  // namespace datasetd::client
