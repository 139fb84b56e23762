// Plans the passes of a chain and its scratch memory. Pure; thread-safe.

#ifndef DATASETD_SERVER_PIPELINE_OPS_PASS_PLANNER_H_
#define DATASETD_SERVER_PIPELINE_OPS_PASS_PLANNER_H_

#include <vector>

#include "absl/types/span.h"
#include "cuda/kernels/program/params.h"
#include "server/pipeline/ops/step_cost.h"

namespace datasetd {

struct PassPlan {
  std::vector<ChainPass> passes;  // at most kMaxPasses
  ChainScratch scratch;           // sizes saturate
};

// Plans the chain of `steps`, whose costs are `costs`. `field` has the size of
// the input and the mix.
PassPlan PlanPasses(const FieldProgram& field, absl::Span<const Step> steps,
                    absl::Span<const StepCost> costs);

}  // namespace datasetd

#endif  // DATASETD_SERVER_PIPELINE_OPS_PASS_PLANNER_H_
