// Plans how a source becomes the resident dataset that a request describes.

#ifndef DATASETD_SERVER_LOAD_SOURCE_PLAN_H_
#define DATASETD_SERVER_LOAD_SOURCE_PLAN_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/dataset/sample_source.h"
#include "server/load/load_plan.h"
#include "server/load/load_request.h"

namespace datasetd {

// If a plan made without `own_sizes` needs sizes,
// plan again with what FindSampleSizes found.
//   INVALID_ARGUMENT  a pretransform is random, invalid or for an unknown
//                     field; more than kMaxDatasetFields; or the dataset
//                     exceeds any memory, or a sample the limits
absl::StatusOr<LoadPlan> PlanSource(
    const LoadRequest& request, const SourceInfo& source,
    std::vector<std::optional<SampleSizes>> own_sizes = {},
    const LoadLimits& limits = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_SOURCE_PLAN_H_
