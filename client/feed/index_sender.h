// Sends the order that a client chose for one of its feeds to the daemon.
//
// Uses one gRPC call per kMaxRowsPerCall rows. Keeps the session alive, whose
// token the calls need. Thread-compatible.

#ifndef DATASETD_CLIENT_FEED_INDEX_SENDER_H_
#define DATASETD_CLIENT_FEED_INDEX_SENDER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/connection/call_limits.h"
#include "datasetd/v1/feed.pb.h"

namespace grpc {
class Status;
}  // namespace grpc

namespace datasetd::client {

class Session;

// Batches that follow those sent before.
struct IndexBlock {
  absl::Span<const int64_t> indices;       // of all batches, concatenated
  absl::Span<const uint32_t> batch_sizes;  // each 1..batch_size
  // If true, the next block begins the next epoch.
  bool ends_epoch = false;
  // Number of this rank's rows in the epoch before the first batch, for a block
  // after a seek. Unset: all earlier batches were full.
  std::optional<uint64_t> first_row;
};

// How long a block may wait for the daemon. Unset members default to the
// client's limits.
struct SendLimits {
  // Total for all calls of the block.
  std::optional<absl::Duration> timeout;
  WaitFunction on_wait;
};

class IndexSender {
 public:
  static constexpr size_t kMaxRowsPerCall = 65536;

  IndexSender(std::shared_ptr<Session> session, uint64_t feed_id,
              const v1::FeedOptions& options, CallLimits limits);

  // Sets the position of the next block.
  void Seek(uint64_t epoch, uint64_t batch);

  struct Result {
    absl::Status status;
    // Number of batches that the daemon acknowledged; all unless there is an
    // error.
    uint64_t num_sent = 0;
    // True if it is unknown whether the daemon took the batches after those.
    bool is_unanswered = false;
  };
  // Sends the block as part of `generation`. Errors as FeedService.SendIndices,
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
  // Position of the next batch to be sent.
  uint64_t epoch_;
  uint64_t batch_;
  uint64_t row_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_INDEX_SENDER_H_
