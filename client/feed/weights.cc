#include "client/feed/weights.h"

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/connection/session.h"
#include "client/connection/unary_call.h"

namespace datasetd::client {

absl::Status AddTo(v1::WeightedOrder* order, const Weights& weights) {
  if (!weights.indices.empty() &&
      weights.indices.size() != weights.weights.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: there are ", weights.weights.size(), " for ",
                     weights.indices.size(), " indices"));
  }
  order->set_num_samples(weights.weights.size());
  order->set_lists_samples(!weights.indices.empty());
  return absl::OkStatus();
}

absl::Status SendWeights(Session* session, uint64_t feed_id,
                         const Weights& weights, const CallLimits& limits) {
  v1::SendWeightsRequest request;
  request.set_feed_id(feed_id);
  for (size_t first = 0; first < weights.weights.size();
       first += kMaxWeightsPerCall) {
    const auto block = weights.weights.subspan(first, kMaxWeightsPerCall);
    request.set_first(first);
    request.mutable_weights()->Assign(block.begin(), block.end());
    if (!weights.indices.empty()) {
      const auto indices = weights.indices.subspan(first, kMaxWeightsPerCall);
      request.mutable_indices()->Assign(indices.begin(), indices.end());
    }
    v1::SendWeightsResponse response;
    DATASETD_RETURN_IF_ERROR(
        session->ToStatus(UnaryCall(session, request, limits, &response)));
  }
  return absl::OkStatus();
}

}  // namespace datasetd::client
