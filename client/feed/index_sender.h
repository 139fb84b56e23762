// The order that a client makes for one of its feeds, on its way to the
// daemon.
//
// It goes over gRPC, in blocks of up to kMaxRowsPerCall rows: one round trip
// for many batches. Keeps the session, whose token the calls need, alive. For
// one thread at a time.

#ifndef DATASETD_CLIENT_FEED_INDEX_SENDER_H_
#define DATASETD_CLIENT_FEED_INDEX_SENDER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/connection/call_limits.h"
#include "client/connection/session.h"
#include "datasetd/v1/feed.pb.h"

namespace datasetd::client {

// Batches that follow what was sent before.
struct IndexBlock {
  absl::Span<const int64_t> indices;  // of all batches, one after the other
  absl::Span<const uint32_t> batch_sizes;  // each 1..batch_size
  // The next block begins the next epoch.
  bool ends_epoch = false;
  // Rows of the epoch, of this rank, before the first batch. For a block after
  // a seek into an epoch; without it all batches before were full.
  std::optional<uint64_t> first_row;
};

// How long a block may wait for the daemon. What is not set is the client's.
struct SendLimits {
  // For all its calls together.
  std::optional<absl::Duration> timeout;
  WaitFunction on_wait;
};

class IndexSender {
 public:
  static constexpr size_t kMaxRowsPerCall = 65536;

  IndexSender(std::shared_ptr<Session> session, uint64_t feed_id,
              const v1::FeedOptions& options, CallLimits limits);

  // The next block begins there.
  void Seek(uint64_t epoch, uint64_t batch);

  struct Result {
    absl::Status status;
    // Batches that the daemon said to have taken; all but on an error.
    uint64_t num_sent = 0;
    // It did not say whether it took the batches after those.
    bool is_unanswered = false;
  };
  // Sends the block as one of `generation`. Errors as FeedService.SendIndices,
  // and
  //   INVALID_ARGUMENT   sizes and indices differ
  //   DEADLINE_EXCEEDED  the daemon did not answer in time
  //   CANCELLED          on_wait returned false
  Result Send(uint64_t generation, const IndexBlock& block,
              const SendLimits& limits);

 private:
  absl::Status ToStatus(const grpc::Status& status, absl::Duration timeout);

  const std::shared_ptr<Session> session_;
  const uint64_t feed_id_;
  const uint32_t batch_size_;
  const CallLimits limits_;
  // Of the next batch to be sent.
  uint64_t epoch_;
  uint64_t batch_;
  uint64_t row_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_INDEX_SENDER_H_
