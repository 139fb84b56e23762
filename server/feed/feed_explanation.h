// Explains what the random ops of a feed draw for given samples.

#ifndef DATASETD_SERVER_FEED_FEED_EXPLANATION_H_
#define DATASETD_SERVER_FEED_FEED_EXPLANATION_H_

#include "absl/status/statusor.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/dataset.h"
#include "server/feed/feed_fields.h"
#include "server/feed/noise_datasets.h"
#include "server/pipeline/ops/transform_limits.h"

namespace datasetd {

// Explains samples of the dataset in an epoch. `fields` are
// CompleteFieldOptions(request.fields()). Pure; thread-safe; takes no device
// memory.
//   INVALID_ARGUMENT  no such sample, or too many for one answer; and as
//                     CompileFeedFields
absl::StatusOr<v1::ExplainTransformsResponse> ExplainFeed(
    const v1::ExplainTransformsRequest& request, const FieldOptionsMap& fields,
    const Dataset& dataset, const TransformLimits& limits = {},
    const NoiseDatasets& noise = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_FEED_EXPLANATION_H_
