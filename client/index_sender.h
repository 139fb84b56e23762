// The order that a client makes for one of its feeds, on its way to the
// daemon.
//
// It goes over gRPC, in blocks of up to kMaxRowsPerCall rows: one round trip
// for many batches. Keeps the session, whose token the calls need, alive. For
// one thread at a time.

#ifndef DATASETD_CLIENT_INDEX_SENDER_H_
#define DATASETD_CLIENT_INDEX_SENDER_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/session.h"
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

class IndexSender {
 public:
  static constexpr size_t kMaxRowsPerCall = 65536;

  IndexSender(std::shared_ptr<Session> session, uint64_t feed_id,
              const v1::FeedOptions& options, absl::Duration timeout);

  // The next block begins there.
  void Seek(uint64_t epoch, uint64_t batch);

  // Sends the block as one of `generation`. `num_sent` becomes the number of
  // batches that the daemon took, all but on an error. Errors as
  // FeedService.SendIndices, and INVALID_ARGUMENT if sizes and indices differ.
  absl::Status Send(uint64_t generation, const IndexBlock& block,
                    uint64_t* num_sent);

 private:
  const std::shared_ptr<Session> session_;
  const uint64_t feed_id_;
  const uint32_t batch_size_;
  const absl::Duration timeout_;
  // Of the next batch to be sent.
  uint64_t epoch_;
  uint64_t batch_;
  uint64_t row_;
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_INDEX_SENDER_H_
