// The arrays of a feed's order, as a client gives and sends them.

#ifndef DATASETD_CLIENT_FEED_FEED_ARRAYS_H_
#define DATASETD_CLIENT_FEED_FEED_ARRAYS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/connection/guarded_fd.h"
#include "datasetd/v1/feed.pb.h"

namespace datasetd::client {

// Views; the caller keeps the numbers until the call returns.
struct FeedArrays {
  // Distinct samples to which the feed is restricted. Empty: all.
  absl::Span<const int64_t> subset;
  // Empty: the order is not weighted.
  absl::Span<const double> weights;
  // The samples of the weights. Empty: those of the dataset, in its order.
  absl::Span<const int64_t> weighted_samples;
  // The classes of the order's samples, for FeedOptions.group_order without
  // client_order, which calls for them.
  absl::Span<const int32_t> classes;
};

// Says in `options` which arrays there are. INVALID_ARGUMENT if there is
// another number of weights than of their samples.
absl::Status AddTo(v1::FeedOptions* options, const FeedArrays& arrays);

// Copies the arrays to sealed memory, in the order of proto/attach_protocol.h.
//   RESOURCE_EXHAUSTED  the system gives no memory or descriptor
absl::StatusOr<std::vector<GuardedFd>> Seal(const FeedArrays& arrays);
absl::StatusOr<GuardedFd> SealWeights(absl::Span<const double> weights);

}  // namespace datasetd::client

namespace datasetd {
using client::FeedArrays;  // NOLINT: the public name
}  // namespace datasetd

#endif  // DATASETD_CLIENT_FEED_FEED_ARRAYS_H_
