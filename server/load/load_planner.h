// Plans how a source becomes the resident dataset that a spec asks for.

#ifndef DATASETD_SERVER_LOAD_LOAD_PLANNER_H_
#define DATASETD_SERVER_LOAD_LOAD_PLANNER_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/dataset/dataset_spec.h"
#include "server/dataset/sample_source.h"
#include "server/load/load_plan.h"

namespace datasetd {

// `max_teams` is the backend's. `own_sizes`, of a plan that this made without
// them and that needs sizes: what FindSampleSizes found.
//   INVALID_ARGUMENT  a pretransform is random, wrong, or for a field that is
//                     not there; more than kMaxDatasetFields; or the dataset is
//                     larger than any memory, or a sample than the limits
absl::StatusOr<LoadPlan> PlanSource(
    const DatasetSpec& spec, const SourceInfo& source, int max_teams,
    std::vector<std::optional<SampleSizes>> own_sizes = {},
    const LoadLimits& limits = {});

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOAD_LOAD_PLANNER_H_
