// One job's ordered, endless sequence of batches from one dataset.
//
//   absl::StatusOr<Feed> feed = client->OpenFeed(options);
//   for (uint64_t i = 0; i < feed->batches_per_epoch(); ++i) {
//     absl::StatusOr<Batch> batch = feed->Next();
//     if (!batch.ok()) return batch.status();
//     Train(batch->field(0), batch->field(1));
//   }  // each batch goes back to the daemon here
//
// For one thread at a time; its batches are for any. Moved-from is closed.

#ifndef DATASETD_CLIENT_FEED_FEED_H_
#define DATASETD_CLIENT_FEED_FEED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/connection/call_limits.h"
#include "client/connection/session.h"
#include "client/feed/batch.h"
#include "client/feed/index_sender.h"
#include "datasetd/v1/feed.pb.h"

namespace datasetd::client {

class Feed {
 public:
  // Use Client::OpenFeed.
  static absl::StatusOr<Feed> Open(const std::shared_ptr<Session>& session,
                                   const v1::FeedOptions& options,
                                   const CallLimits& limits,
                                   const std::string& cuda_library);
  Feed(Feed&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)),
        info_(std::move(other.info_)),
        sender_(std::move(other.sender_)) {}
  Feed& operator=(Feed&& other) noexcept {
    std::swap(core_, other.core_);
    std::swap(info_, other.info_);
    std::swap(sender_, other.sender_);
    return *this;
  }
  ~Feed() { Close(); }

  // The next batch of the sequence, for use on `stream` (a CUstream as an
  // integer, 0 is the default stream; ignored on the host). A ready batch costs
  // no system call, and its memory needs no further wait. Details of errors:
  // client/connection/error_detail.h.
  //   DEADLINE_EXCEEDED    none was ready within `timeout`
  //   UNAVAILABLE          the daemon is gone
  //   ABORTED              the daemon drains, or evicted the feed
  //   FAILED_PRECONDITION  the dataset was unloaded; or this process keeps
  //                        every slot, and the message names the fields; or
  //                        epochs hold no batch; no more was sent in; closed;
  //                        used after fork()
  //   INTERNAL             the daemon's device failed, or it broke the protocol
  // What was published before the end of the daemon is still handed out.
  absl::StatusOr<Batch> Next(uint64_t stream = 0,
                             absl::Duration timeout = absl::InfiniteDuration());

  // The next batch is batch `batch` of epoch `epoch`. Batches made ahead are
  // skipped; asking for what comes anyway costs nothing. INVALID_ARGUMENT if an
  // epoch has no such batch. With client_order what was sent and has not come
  // is dropped, and the next block begins there.
  absl::Status Seek(uint64_t epoch, uint64_t batch);

  // With client_order: says what the next batches are. At most
  // info().order_capacity() batches may be sent that Next has not returned.
  // One call to the daemon for up to 65,536 rows.
  //   DEADLINE_EXCEEDED    the daemon did not answer in time; it may have taken
  //                        the batches all the same, so the order is lost
  //                        behind those of earlier calls: go on with Seek
  //   CANCELLED            on_wait returned false; as before
  //   INVALID_ARGUMENT     sizes
  //   OUT_OF_RANGE         no such sample; nothing of that call is taken
  //   RESOURCE_EXHAUSTED   more than may be sent ahead
  //   FAILED_PRECONDITION  the order is the daemon's, or lost; closed; after
  //                        fork()
  //   UNAVAILABLE          the daemon is gone
  absl::Status SendIndices(const IndexBlock& block,
                           const SendLimits& limits = {});

  // 0 is legal, and so it is with client_order.
  uint64_t batches_per_epoch() const { return info_.batches_per_epoch(); }
  // What the daemon said when it opened the feed: layout, hashes, prefetch.
  const v1::OpenFeedResponse& info() const { return info_; }
  // REQUIRES: not closed.
  const SlotLayout& layout() const { return core_->layout(); }
  DLDevice device() const { return core_->device(); }
  // Spent in Next, waiting.
  absl::Duration waited() const { return core_->waited(); }
  FeedCore* core() const { return core_; }

  // Ends the feed. The daemon gets its memory back when the last batch and
  // tensor are gone, too.
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
  std::unique_ptr<IndexSender> sender_;  // null: the daemon's order
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_FEED_H_
