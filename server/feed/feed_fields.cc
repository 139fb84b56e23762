#include "server/feed/feed_fields.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/pipeline/mix_labels.h"
#include "server/pipeline/paired_sizes.h"
#include "server/pipeline/pipeline.h"

namespace datasetd {
namespace {

std::string NamesOf(absl::Span<const FieldSpec> fields) {
  return absl::StrJoin(fields, ", ",
                       [](std::string* out, const FieldSpec& field) {
                         out->append(field.name);
                       });
}

// Returns fields.size() if there is none.
size_t Find(absl::Span<const FieldSpec> fields, const std::string& name) {
  return static_cast<size_t>(
      std::find_if(fields.begin(), fields.end(),
                   [&](const FieldSpec& field) { return field.name == name; }) -
      fields.begin());
}

// Returns indices of the dataset's fields.
absl::StatusOr<std::vector<size_t>> Choose(
    const Dataset& dataset, absl::Span<const std::string> names) {
  const std::vector<FieldSpec>& fields = dataset.fields();
  std::vector<size_t> chosen;
  for (const std::string& name : names) {
    const size_t f = Find(fields, name);
    if (f == fields.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field_names: dataset '", dataset.name(), "' has no field '", name,
          "'; it has: ", NamesOf(fields)));
    }
    if (std::find(chosen.begin(), chosen.end(), f) != chosen.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("field_names: '", name, "' is named twice"));
    }
    chosen.push_back(f);
  }
  if (names.empty()) {
    chosen.resize(fields.size());
    std::iota(chosen.begin(), chosen.end(), size_t{0});
  }
  if (chosen.size() <= static_cast<size_t>(kMaxFields)) return chosen;
  return absl::InvalidArgumentError(absl::StrCat(
      names.empty() ? absl::StrCat("dataset '", dataset.name(), "' has ")
                    : "field_names: ",
      chosen.size(), " fields; a feed carries at most ", kMaxFields,
      ": choose them with field_names, in Python with fields="));
}

absl::Status CheckOptions(
    const Dataset& dataset, absl::Span<const FieldSpec> specs,
    const std::map<std::string, FeedFieldOptions>& options) {
  for (const auto& [name, field_options] : options) {
    if (Find(specs, name) < specs.size()) continue;
    if (Find(dataset.fields(), name) < dataset.fields().size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "transforms: field '", name,
          "' is not among the fields of the feed, ", NamesOf(specs),
          ": choose it, too, or leave out its transforms"));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "transforms: dataset '", dataset.name(), "' has no field '", name,
        "'; it has: ", NamesOf(dataset.fields())));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FeedFields> CompileFeedFields(
    const Dataset& dataset, absl::Span<const std::string> names,
    const std::map<std::string, FeedFieldOptions>& options, bool skips_packed,
    const TransformLimits& limits) {
  FeedFields fields;
  DATASETD_ASSIGN_OR_RETURN(fields.sources, Choose(dataset, names));
  for (const size_t source : fields.sources) {
    fields.specs.push_back(dataset.fields()[source]);
  }
  DATASETD_RETURN_IF_ERROR(CheckOptions(dataset, fields.specs, options));
  std::vector<Transforms> transforms;
  for (size_t f = 0; f < fields.specs.size(); ++f) {
    const FieldSpec& spec = fields.specs[f];
    const size_t source = fields.sources[f];
    const auto found = options.find(spec.name);
    const FeedFieldOptions field_options =
        found == options.end() ? FeedFieldOptions() : found->second;
    FieldProgram program = {};
    if (!skips_packed || found != options.end() || !spec.is_packed()) {
      DATASETD_ASSIGN_OR_RETURN(
          program, CompileField(spec, Narrow<int>(source),
                                field_options.transforms, field_options.layout,
                                dataset.field_sizes(source), limits));
      program.source = dataset.field_data(source);
      program.ragged = dataset.field_index_data(source);
      program.sample_stride_bytes = spec.is_packed() ? 0 : spec.sample_bytes();
    }
    fields.programs.push_back(program);
    fields.pipelines.push_back({.field = spec.name,
                                .transforms = field_options.transforms,
                                .layout = field_options.layout});
    transforms.push_back(field_options.transforms);
  }
  DATASETD_RETURN_IF_ERROR(LinkMixedLabels(fields.specs, transforms,
                                           absl::MakeSpan(fields.programs)));
  DATASETD_RETURN_IF_ERROR(
      CheckPairedSizes(dataset, fields.sources, fields.programs));
  return fields;
}

}  // namespace datasetd
