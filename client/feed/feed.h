// One job's ordered, infinite sequence of batches from one dataset.
//
//   absl::StatusOr<Feed> feed = client->OpenFeed(options);
//   for (uint64_t i = 0; i < feed->batches_per_epoch(); ++i) {
//     absl::StatusOr<Batch> batch = feed->Next();
//     if (!batch.ok()) return batch.status();
//     Train(batch->field(0), batch->field(1));
//   }  // each batch goes back to the daemon here
//
// Thread-compatible; its batches may be used on any thread. A moved-from Feed
// is closed.

#ifndef DATASETD_CLIENT_FEED_FEED_H_
#define DATASETD_CLIENT_FEED_FEED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/connection/call_limits.h"
#include "client/feed/batch.h"
#include "client/feed/feed_arrays.h"
#include "client/feed/index_sender.h"
#include "datasetd/v1/feed.pb.h"

namespace datasetd::client {

class Session;

class Feed {
 public:
  // Use Client::OpenFeed.
  static absl::StatusOr<Feed> Open(const std::shared_ptr<Session>& session,
                                   const v1::FeedOptions& options,
                                   const FeedArrays& arrays,
                                   const CallLimits& limits);
  Feed(Feed&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)),
        info_(std::move(other.info_)),
        sender_(std::move(other.sender_)) {}
  Feed& operator=(Feed&& other) noexcept {
    Feed taken(std::move(other));
    std::swap(core_, taken.core_);
    std::swap(info_, taken.info_);
    std::swap(sender_, taken.sender_);
    return *this;
  }
  ~Feed() { Close(); }

  // Returns the next batch, for use on `stream` (a CUstream as an integer; 0 is
  // the default stream; ignored on the host). A batch that is ready costs no
  // system call and can be read without further waiting. For error details see
  // client/connection/error_detail.h.
  //   DEADLINE_EXCEEDED    no batch was ready within `timeout`
  //   INVALID_ARGUMENT     `stream` is CU_STREAM_PER_THREAD, which is another
  //                        one on the thread that releases the batch
  //   UNAVAILABLE          the daemon is gone
  //   ABORTED              the daemon is draining, or evicted the feed
  //   FAILED_PRECONDITION  the dataset was unloaded; or this process holds
  //                        every slot (the message names the fields); or epochs
  //                        have no batches; or the last one, 2^32 - 1, has
  //                        ended; or no more indices were sent; or the feed is
  //                        closed or used after fork()
  //   INTERNAL             the daemon's device failed (kDeviceFailed); it
  //                        refused the feed's work, or the samples can no
  //                        longer be read (kFeedFailed); this process's CUDA
  //                        context failed (kContextFailed); the daemon broke
  //                        the protocol
  // Batches published before the daemon ended are still returned.
  absl::StatusOr<Batch> Next(uint64_t stream = 0,
                             absl::Duration timeout = absl::InfiniteDuration());

  // Makes batch `batch` of epoch `epoch` the next one. Batches made ahead are
  // skipped; seeking to the current position costs nothing. INVALID_ARGUMENT if
  // an epoch has no such batch. With client_order, batches that were sent but
  // not returned are dropped, and the next block begins at this position.
  absl::Status Seek(uint64_t epoch, uint64_t batch);

  // Gives a weighted feed other weights, one for each of those that it was
  // opened with. It draws by them from the next Seek on, also one to the
  // current position; batches before that, of whatever epoch, do not change.
  // Called again before that Seek, the last weights count. Costs a call to the
  // daemon, which copies and checks them.
  //   INVALID_ARGUMENT     there is another number, or a weight is wrong
  //   RESOURCE_EXHAUSTED   the memory budget
  //   FAILED_PRECONDITION  the feed is not weighted, or as Next
  //   DEADLINE_EXCEEDED,   the daemon did not answer in time, or on_wait
  //   CANCELLED            returned false: which weights the next Seek brings
  //                        is not known; set them again
  //   otherwise            as Next
  // Except for the last two rows, after an error of the weights the feed has
  // those before.
  absl::Status SetWeights(absl::Span<const double> weights,
                          const CallLimits& limits = {});

  // With client_order: appends batches to the order. At most
  // info().order_capacity() batches may be sent ahead of Next. Makes one call
  // to the daemon per 65,536 rows.
  //   DEADLINE_EXCEEDED    the daemon did not answer in time and may have taken
  //                        the batches, so the order after earlier calls is
  //                        unknown: continue with Seek
  //   CANCELLED            on_wait returned false; continue with Seek
  //   INVALID_ARGUMENT     sizes are wrong
  //   OUT_OF_RANGE         no such sample; the daemon took nothing of that call
  //   RESOURCE_EXHAUSTED   more batches than may be sent ahead
  //   FAILED_PRECONDITION  the feed has no client_order, the order is lost, or
  //                        the feed is closed or used after fork()
  //   UNAVAILABLE          the daemon is gone
  absl::Status SendIndices(const IndexBlock& block,
                           const SendLimits& limits = {});

  // May be 0; always 0 with client_order.
  uint64_t batches_per_epoch() const { return info_.batches_per_epoch(); }
  // The daemon's answer to OpenFeed: layout, hashes, prefetch.
  const v1::OpenFeedResponse& info() const { return info_; }
  // The next four REQUIRE: not closed.
  const SlotLayout& layout() const { return core_->layout(); }
  DLDevice device() const { return core_->device(); }
  // Total time that Next has waited.
  absl::Duration waited() const { return core_->waited(); }
  // Number of slots, of prefetch + 2, that this process holds. Thread-safe.
  uint32_t num_held() const { return core_->num_held(); }
  FeedCore* core() const { return core_; }

  // Ends the feed. The daemon gets its memory back once the last batch and
  // tensor are gone as well.
  void Close() {
    if (FeedCore* const core = std::exchange(core_, nullptr)) core->Close();
    sender_.reset();
  }

 private:
  Feed(FeedCore* core, v1::OpenFeedResponse info,
       std::unique_ptr<IndexSender> sender)
      : core_(core), info_(std::move(info)), sender_(std::move(sender)) {}

  FeedCore* core_;
  v1::OpenFeedResponse info_;
  std::unique_ptr<IndexSender> sender_;  // null without client_order
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_FEED_H_
