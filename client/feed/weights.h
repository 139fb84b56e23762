// The weights of a feed's samples, as a client gives and sends them.

#ifndef DATASETD_CLIENT_FEED_WEIGHTS_H_
#define DATASETD_CLIENT_FEED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "client/connection/call_limits.h"
#include "datasetd/v1/feed.pb.h"

namespace datasetd::client {

class Session;

// Views; the caller keeps the numbers until the call returns.
struct Weights {
  // Empty: the order is not weighted.
  absl::Span<const double> weights;
  // The samples of the weights. Empty: those of the dataset, in its order.
  absl::Span<const int64_t> indices;
};

inline constexpr size_t kMaxWeightsPerCall = 1 << 17;

// Sets the number and the kind of `weights`. INVALID_ARGUMENT if there is
// another number of indices.
absl::Status AddTo(v1::WeightedOrder* order, const Weights& weights);

// Sends all weights of a feed that is not attached yet, if there are any.
// Blocks for at most limits.timeout per kMaxWeightsPerCall weights. Errors as
// FeedService.SendWeights.
absl::Status SendWeights(Session* session, uint64_t feed_id,
                         const Weights& weights, const CallLimits& limits);

}  // namespace datasetd::client

namespace datasetd {
using client::Weights;  // NOLINT: the public name
}  // namespace datasetd

#endif  // DATASETD_CLIENT_FEED_WEIGHTS_H_
