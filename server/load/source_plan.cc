#include "server/load/source_plan.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/pipeline/pipeline.h"

namespace datasetd {
namespace {

absl::StatusOr<std::vector<std::optional<FieldProgram>>> CompilePretransforms(
    const Pretransforms& pretransforms, const std::vector<FieldSpec>& fields,
    bool is_awaited, const TransformLimits& limits) {
  for (const auto& [name, ops] : pretransforms) {
    if (std::none_of(
            fields.begin(), fields.end(),
            [&name = name](const FieldSpec& f) { return f.name == name; })) {
      return absl::InvalidArgumentError(
          absl::StrCat("pretransforms: the source has no field '", name, "'"));
    }
    if (!ops.empty() &&
        std::any_of(fields.begin(), fields.end(),
                    [](const FieldSpec& field) { return field.is_packed(); })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", name,
          "', pretransforms: images of the dataset differ in "
          "size; make them one size before they are sent, or give the ops to "
          "the loader's transforms"));
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
    const auto ops = pretransforms.find(fields[f].name);
    if (ops == pretransforms.end() || ops->second.empty()) continue;
    if (is_awaited && fields[f].is_ragged) continue;
    // Resident samples are [H, W, C].
    DATASETD_ASSIGN_OR_RETURN(
        programs[f], CompileField(fields[f], Narrow<int>(f), ops->second,
                                  Layout::kNhwc, {}, limits));
  }
  return programs;
}

// The size that suffices for an image whose first op is a Resize and whose
// resident size is independent of its own; 0 x 0 if the full size is needed.
ImageSize EnoughFor(const Transforms& ops) {
  if (ops.empty() || !ops[0].has_resize()) return {};
  const v1::Resize& resize = ops[0].resize();
  if (resize.size().height() > 0 && resize.size().width() > 0) {
    return {resize.size().height(), resize.size().width()};
  }
  if (resize.shorter_edge() > 0 && resize.max_size() == 0 && ops.size() > 1 &&
      ops[1].has_center_crop()) {
    return {resize.shorter_edge(), resize.shorter_edge()};
  }
  return {};
}

// The size that suffices for all ragged fields.
ImageSize SmallerImages(const LoadPlan& plan, const SourceInfo& source) {
  ImageSize enough;
  for (size_t f = 0; f < plan.fields.size(); ++f) {
    if (!source.fields[f].is_ragged) continue;
    const ImageSize size = EnoughFor(plan.fields[f].ops);
    if (size == ImageSize()) return {};
    enough.height = std::max(enough.height, size.height);
    enough.width = std::max(enough.width, size.width);
  }
  return enough;
}

// By field: null if the source's samples may differ in size and no op makes
// them equal, or if they are still to come.
std::vector<std::optional<SampleSizes>> UnknownSizes(
    const Pretransforms& pretransforms, const SourceInfo& source) {
  std::vector<std::optional<SampleSizes>> unknown(source.fields.size());
  for (size_t f = 0; f < source.fields.size(); ++f) {
    if (!source.is_encoded || !source.fields[f].is_ragged) continue;
    const auto ops = pretransforms.find(source.fields[f].name);
    if (ops != pretransforms.end() && !source.is_awaited &&
        std::any_of(ops->second.begin(), ops->second.end(), GivesOneSize)) {
      continue;
    }
    unknown[f] = SampleSizes();
  }
  return unknown;
}

}  // namespace

absl::StatusOr<LoadPlan> PlanSource(
    const LoadRequest& request, const SourceInfo& source,
    std::vector<std::optional<SampleSizes>> own_sizes,
    const LoadLimits& limits) {
  if (source.fields.size() > static_cast<size_t>(kMaxDatasetFields)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the source has ", source.fields.size(),
                     " fields; a dataset has at "
                     "most ",
                     kMaxDatasetFields, ": choose with option fields"));
  }
  const v1::DatasetSpec& spec = *request.spec;
  const Pretransforms& pretransforms = request.pretransforms;
  DATASETD_ASSIGN_OR_RETURN(
      const auto programs,
      CompilePretransforms(pretransforms, source.fields, source.is_awaited,
                           limits.transforms));
  if (own_sizes.empty()) own_sizes = UnknownSizes(pretransforms, source);
  DATASETD_ASSIGN_OR_RETURN(LoadPlan plan,
                            PlanLoad(source, programs, own_sizes, limits));
  if (spec.bad_samples() != v1::BAD_SAMPLE_POLICY_UNSPECIFIED) {
    plan.bad_samples = spec.bad_samples();
  }
  plan.max_bad_samples = MaxBadSamples(spec);
  if (plan.has_work() || !source.is_sequential) {
    plan.num_workers =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  for (size_t f = 0; f < plan.fields.size(); ++f) {
    const auto ops = pretransforms.find(source.fields[f].name);
    if (ops != pretransforms.end()) plan.fields[f].ops = ops->second;
  }
  if (plan.is_encoded) plan.smaller_images = SmallerImages(plan, source);
  return plan;
}

}  // namespace datasetd
