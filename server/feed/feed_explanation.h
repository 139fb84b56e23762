// Explains what the random ops of a feed draw for given samples.

#ifndef DATASETD_SERVER_FEED_FEED_EXPLANATION_H_
#define DATASETD_SERVER_FEED_FEED_EXPLANATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/dataset.h"
#include "server/feed/feed_options.h"
#include "server/pipeline/explain.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// The ops of a feed and the values they draw for some samples.
struct Explanation {
  struct Sample {
    int64_t index = 0;
    std::vector<OpDraw> ops;
  };
  std::vector<Sample> samples;
  // Maps OpDraw::field to the field's name.
  std::vector<std::string> fields;
};

// Explains samples of the dataset in an epoch. Pure; thread-safe; takes no
// device memory.
//   INVALID_ARGUMENT  no such sample, or too many for one answer; and as
//                     CompileFeedFields
absl::StatusOr<Explanation> ExplainFeed(const FeedOptions& options,
                                        const Dataset& dataset, uint64_t epoch,
                                        absl::Span<const uint64_t> indices,
                                        const TransformLimits& limits = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_EXPLANATION_H_
