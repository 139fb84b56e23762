#include "server/core/load_planner.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cuda/status_macros.h"
#include "server/core/pipeline.h"

namespace datasetd {
namespace {

absl::StatusOr<std::vector<std::optional<FieldProgram>>> CompilePretransforms(
    const DatasetSpec& spec, const std::vector<FieldSpec>& fields) {
  for (const auto& [name, ops] : spec.pretransforms) {
    if (std::none_of(fields.begin(), fields.end(),
                     [&](const FieldSpec& f) { return f.name == name; })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pretransforms: the source has no field '", name, "'"));
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      if (IsDeterministic(absl::MakeConstSpan(&ops[i], 1))) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", name, "', pretransforms[", i, "] ", TransformName(ops[i]),
          ": a random op cannot run at load; give it to the loader's "
          "transforms"));
    }
  }
  std::vector<std::optional<FieldProgram>> programs(fields.size());
  for (size_t f = 0; f < fields.size(); ++f) {
    const auto ops = spec.pretransforms.find(fields[f].name);
    if (ops == spec.pretransforms.end() || ops->second.empty()) continue;
    // Resident samples are [H, W, C].
    DATASETD_ASSIGN_OR_RETURN(
        programs[f], CompileField(fields[f], static_cast<int>(f), ops->second,
                                  Layout::kNhwc));
    const Dtype dtype = programs[f]->out_dtype;
    if (programs[f]->is_image && dtype != Dtype::kUint8 &&
        dtype != Dtype::kFloat32) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", fields[f].name, "': pretransforms make it ",
          DtypeName(dtype), ", and images are uint8 or float32 in memory: ",
          "give ToDtype(", DtypeName(dtype), ") to the loader's transforms"));
    }
  }
  return programs;
}

}  // namespace

absl::StatusOr<LoadPlan> PlanSource(const DatasetSpec& spec,
                                    const SourceInfo& source) {
  DATASETD_ASSIGN_OR_RETURN(const auto programs,
                            CompilePretransforms(spec, source.fields));
  DATASETD_ASSIGN_OR_RETURN(LoadPlan plan, PlanLoad(source, programs));
  if (!plan.is_encoded) return plan;
  plan.bad_samples = spec.bad_samples;
  plan.max_bad_samples = spec.max_bad_samples;
  plan.num_decode_threads =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (size_t f = 0; f < plan.fields.size(); ++f) {
    const auto ops = spec.pretransforms.find(source.fields[f].name);
    if (ops != spec.pretransforms.end()) plan.fields[f].ops = ops->second;
  }
  return plan;
}

}  // namespace datasetd
