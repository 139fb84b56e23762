#include "server/feed/feed_fields.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/feed/field_crop.h"
#include "server/pipeline/mix_labels.h"
#include "server/pipeline/ops/image_compiler.h"
#include "server/pipeline/ops/transform.h"
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

constexpr size_t kMaxNameBytes = 128;

absl::StatusOr<size_t> SourceOf(const Dataset& dataset, const std::string& name,
                                const FieldOptionsMap& options) {
  const std::vector<FieldSpec>& fields = dataset.fields();
  const auto found = options.find(name);
  const size_t own = Find(fields, name);
  if (found == options.end() || found->second.source().empty() ||
      found->second.source() == name) {
    if (own < fields.size()) return own;
    return absl::InvalidArgumentError(
        absl::StrCat(found == options.end() ? "field_names" : "transforms",
                     ": dataset '", dataset.name(), "' has no field '", name,
                     "'; it has: ", NamesOf(fields)));
  }
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fields: a name of ", name.size(), " bytes with source '",
        found->second.source(), "': it must have 1 to ", kMaxNameBytes));
  }
  const size_t source = Find(fields, found->second.source());
  if (source == fields.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("fields: source of '", name, "': dataset '",
                     dataset.name(), "' has no field '", found->second.source(),
                     "'; it has: ", NamesOf(fields)));
  }
  if (own < fields.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fields: '", name, "' with source '", found->second.source(),
        "' has the name of a field of dataset '", dataset.name(),
        "': take another name"));
  }
  return source;
}

// Of a field, for the transforms hash; `source` is the dataset's.
std::string PipelineName(const std::string& name, const std::string& source,
                         const v1::FieldOptions& options) {
  const v1::SequenceCrop& crop = options.crop();
  if (name == source && options.view() == 0 && options.shift() == 0 &&
      !options.has_crop()) {
    return name;
  }
  return absl::StrCat(
      name, " is view ", options.view(), " of ", source,
      options.shift() == 0 ? "" : absl::StrCat(" from ", options.shift()),
      options.row_field() == v1::ROW_FIELD_UNSPECIFIED
          ? ""
          : absl::StrCat(" as ", v1::RowField_Name(options.row_field())),
      options.has_crop()
          ? absl::StrCat(" cropped to ", crop.length(), " steps at ",
                         v1::CropPlace_Name(crop.place()), " and filled by ",
                         crop.fill())
          : "");
}

absl::Status OnlyWith(absl::string_view what, const std::string& value,
                      const FieldSpec& spec, absl::string_view order) {
  return absl::InvalidArgumentError(
      absl::StrCat("fields: ", what, " of '", spec.name, "' is ", value,
                   ", and the feed has no ", order, " (in Python windows=)"));
}

// Lets the field, which has in_width elements of each step, take them from the
// entries of rows of documents.
absl::Status UseEntries(const v1::DocumentOrder& order,
                        const v1::FieldOptions& options, FieldSpec& spec,
                        FieldProgram& program, uint64_t& num_steps) {
  program.entry_kind = EntryKind::kStep;
  program.entry_elements = program.in_width;
  program.first_entry = Narrow<int32_t>(std::min<uint32_t>(options.shift(), 1));
  if (options.row_field() != v1::ROW_FIELD_UNSPECIFIED) {
    const bool is_ids = options.row_field() == v1::ROW_FIELD_POSITION_IDS;
    if (!v1::RowField_IsValid(options.row_field()) || options.shift() != 0 ||
        !options.transforms().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "fields: '", spec.name, "' has row_field ",
          static_cast<int>(options.row_field()),
          ", which is to be one that there is, without shift and transforms"));
    }
    spec.dtype = is_ids ? Dtype::kInt64 : Dtype::kInt32;
    spec.shape.clear();
    program.in_dtype = program.out_dtype = spec.dtype;
    program.in_width = program.entry_elements = 1;
    program.entry_kind = is_ids ? EntryKind::kPosition : EntryKind::kNumber;
    if (!is_ids) {
      // Behind those of the steps and of the next one.
      program.first_entry = Narrow<int32_t>(num_steps + 1);
      ++num_steps;
    }
    return absl::OkStatus();
  }
  if (options.shift() == 0) return absl::OkStatus();
  if (options.shift() > 1 || program.out_dtype != Dtype::kInt64) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fields: '", spec.name, "' has shift ", options.shift(), " and is ",
        DtypeName(program.out_dtype),
        "; with documents a shift is 1, and of a field that is delivered as "
        "int64"));
  }
  program.fill = static_cast<uint64_t>(order.ignore_index());
  program.fills_starts = order.ignores_ends();
  return absl::OkStatus();
}

// `num_elements`: those of a step.
absl::Status CheckLength(const v1::WindowOrder& windows, const FieldSpec& spec,
                         int64_t num_elements) {
  // One more for the entry of the next step, and the end of the sequences.
  const auto most = static_cast<uint64_t>(kMaxElements / num_elements) - 1;
  if (windows.length() < 1 || windows.length() > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: length is ", windows.length(), "; with field '",
        spec.name, "' it must be within 1..", most));
  }
  return absl::OkStatus();
}

// Returns the field whose samples are windows, for its ops.
absl::StatusOr<FieldSpec> WindowSpec(const v1::WindowOrder& windows,
                                     const v1::Transform& op,
                                     const FieldSpec& spec) {
  if (windows.has_documents()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "field '", spec.name, "': transforms: ", TransformName(op),
        " needs consecutive steps, and rows of documents have others: use "
        "blocks or random windows, or leave it out"));
  }
  const int64_t num_elements = std::accumulate(
      spec.shape.begin(), spec.shape.end(), int64_t{1}, SaturatingMultiply);
  DATASETD_RETURN_IF_ERROR(
      CheckLength(windows, spec, std::max<int64_t>(num_elements, 1)));
  FieldSpec window = spec;
  window.shape.insert(window.shape.begin(),
                      static_cast<int64_t>(windows.length()));
  return window;
}

// Makes windows of a field; null: there are none.
absl::Status MakeWindows(const v1::WindowOrder* windows,
                         const v1::FieldOptions& options, FieldSpec& spec,
                         FieldProgram& program) {
  if (options.has_crop() && options.shift() == 0) return absl::OkStatus();
  const bool has_row_field = options.row_field() != v1::ROW_FIELD_UNSPECIFIED;
  if (has_row_field && (windows == nullptr || !windows->has_documents())) {
    return OnlyWith("row_field", absl::StrCat(options.row_field()), spec,
                    "documents");
  }
  if (windows == nullptr) {
    if (options.shift() == 0) return absl::OkStatus();
    return OnlyWith("shift", absl::StrCat(options.shift()), spec, "windows");
  }
  if (spec.is_image) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: field '", spec.name,
        "' is an image, and windows are of tokens and other sequences: choose "
        "other fields with field_names, in Python with fields="));
  }
  // Compiled for a window.
  if (program.num_steps > 0) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(CheckLength(*windows, spec, program.in_width));
  uint64_t num_steps = windows->length();
  if (windows->has_documents()) {
    DATASETD_RETURN_IF_ERROR(
        UseEntries(windows->documents(), options, spec, program, num_steps));
  }
  const auto steps = static_cast<int64_t>(num_steps);
  program.in_width = Narrow<int32_t>(program.in_width * steps);
  program.out_width = program.in_width;
  program.operations = program.in_width;
  spec.shape.insert(spec.shape.begin(), steps);
  return absl::OkStatus();
}

absl::Status CheckOptions(const Dataset& dataset,
                          absl::Span<const FieldSpec> specs,
                          const FieldOptionsMap& options) {
  for (const auto& [name, field_options] : options) {
    if (Find(specs, name) < specs.size()) continue;
    if (!field_options.source().empty() ||
        Find(dataset.fields(), name) < dataset.fields().size()) {
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

absl::StatusOr<FieldOptionsMap> CompleteFieldOptions(
    const google::protobuf::Map<std::string, v1::FieldOptions>& fields) {
  if (fields.size() > static_cast<size_t>(kMaxDatasetFields)) {
    return absl::InvalidArgumentError(
        absl::StrCat("fields: there are ", fields.size(),
                     "; a feed has at most ", kMaxDatasetFields));
  }
  FieldOptionsMap complete;
  for (const auto& [name, given] : fields) {
    DATASETD_ASSIGN_OR_RETURN(
        const Transforms transforms,
        CompleteTransforms(given.transforms(),
                           absl::StrCat("field '", name, "', transforms")));
    v1::FieldOptions& options = complete[name];
    options = given;
    *options.mutable_transforms() = {transforms.begin(), transforms.end()};
    if (options.view() > static_cast<uint32_t>(kMaxView)) {
      return absl::InvalidArgumentError(absl::StrCat("fields: view of '", name,
                                                     "' is ", options.view(),
                                                     ": at most ", kMaxView));
    }
    if (!v1::Layout_IsValid(options.layout())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", name, "': layout ", static_cast<int>(options.layout()),
          " is unknown; one of NCHW, NHWC"));
    }
  }
  return complete;
}

absl::StatusOr<std::vector<PartFields>> CompletePartFields(
    const v1::FeedOptions& options) {
  const auto& parts = options.mixture().parts();
  std::vector<PartFields> groups;
  if (std::none_of(parts.begin(), parts.end(),
                   [](const auto& part) { return part.has_own_fields(); })) {
    return groups;
  }
  const auto has_same = [](const auto& a, const auto& b) {
    return a.size() == b.size() &&
           std::all_of(a.begin(), a.end(), [&](const auto& field) {
             const auto other = b.find(field.first);
             return other != b.end() && field.second.SerializeAsString() ==
                                            other->second.SerializeAsString();
           });
  };
  for (int d = 0; d < parts.size(); ++d) {
    absl::StatusOr<FieldOptionsMap> own = CompleteFieldOptions(
        parts[d].has_own_fields() ? parts[d].fields() : options.fields());
    if (!own.ok()) {
      return absl::Status(own.status().code(),
                          absl::StrCat("mixture, dataset '", parts[d].dataset(),
                                       "': ", own.status().message()));
    }
    auto same = std::find_if(
        groups.begin(), groups.end(),
        [&](const PartFields& group) { return has_same(group.options, *own); });
    if (same == groups.end()) {
      groups.push_back({0, *std::move(own)});
      same = groups.end() - 1;
    }
    same->parts |= uint64_t{1} << d;
  }
  return groups;
}

absl::StatusOr<FeedFields> ChooseFeedFields(const Dataset& dataset,
                                            std::vector<std::string> names,
                                            const FieldOptionsMap& options) {
  const bool takes_all = names.empty();
  if (takes_all) {
    for (const FieldSpec& field : dataset.fields()) names.push_back(field.name);
    for (const auto& [name, field_options] : options) {
      const std::string& source = field_options.source();
      if (!source.empty() && source != name) names.push_back(name);
    }
  }
  if (names.size() > static_cast<size_t>(kMaxFields)) {
    return absl::InvalidArgumentError(absl::StrCat(
        takes_all ? absl::StrCat("dataset '", dataset.name(), "' has ")
                  : "field_names: ",
        names.size(), " fields; a feed carries at most ", kMaxFields,
        ": choose them with field_names, in Python with fields="));
  }
  FeedFields chosen;
  for (const std::string& name : names) {
    DATASETD_ASSIGN_OR_RETURN(const size_t source,
                              SourceOf(dataset, name, options));
    if (Find(chosen.specs, name) < chosen.specs.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("field_names: '", name, "' is named twice"));
    }
    chosen.sources.push_back(source);
    chosen.specs.push_back(dataset.fields()[source]);
    chosen.specs.back().name = name;
  }
  return chosen;
}

int64_t FeedFields::largest_shift() const {
  return shifts.empty() ? 0 : *std::max_element(shifts.begin(), shifts.end());
}

absl::StatusOr<FeedFields> CompileFeedFields(const Dataset& dataset,
                                             std::vector<std::string> names,
                                             const FieldOptionsMap& options,
                                             bool skips_packed,
                                             const TransformLimits& limits,
                                             const v1::WindowOrder* windows,
                                             const NoiseFinder& noise) {
  DATASETD_ASSIGN_OR_RETURN(
      FeedFields fields, ChooseFeedFields(dataset, std::move(names), options));
  DATASETD_RETURN_IF_ERROR(CheckOptions(dataset, fields.specs, options));
  std::vector<Transforms> transforms;
  for (size_t f = 0; f < fields.specs.size(); ++f) {
    FieldSpec& spec = fields.specs[f];
    const size_t source = fields.sources[f];
    const auto found = options.find(spec.name);
    const v1::FieldOptions& field_options =
        found == options.end() ? v1::FieldOptions::default_instance()
                               : found->second;
    const Layout layout = field_options.layout() == v1::LAYOUT_NHWC
                              ? Layout::kNhwc
                              : Layout::kNchw;
    transforms.emplace_back(field_options.transforms().begin(),
                            field_options.transforms().end());
    const bool is_sequence = !spec.is_image && !IsCopied(transforms.back());
    FieldSpec in = spec;
    if (is_sequence && windows != nullptr) {
      DATASETD_ASSIGN_OR_RETURN(
          in, WindowSpec(*windows, transforms.back().front(), spec));
    }
    FieldProgram program = {};
    if (!skips_packed || found != options.end() || !spec.is_packed()) {
      DATASETD_RETURN_IF_ERROR(
          CheckCrop(field_options, spec, windows != nullptr));
      const int64_t stride_bytes = spec.is_packed() ? 0 : spec.sample_bytes();
      if (field_options.has_crop()) {
        DATASETD_ASSIGN_OR_RETURN(
            program,
            CompileCrop(field_options, Narrow<int>(source), transforms.back(),
                        layout, limits, noise, spec));
        in = spec;
      } else {
        DATASETD_ASSIGN_OR_RETURN(
            program,
            CompileField(in, Narrow<int>(source), transforms.back(), layout,
                         dataset.field_sizes(source), limits,
                         static_cast<int>(field_options.view()), noise));
      }
      program.source = dataset.field_data(source);
      program.ragged = dataset.field_index_data(source);
      program.sample_stride_bytes = stride_bytes;
    }
    DATASETD_RETURN_IF_ERROR(
        MakeWindows(windows, field_options, spec, program));
    if (is_sequence) spec.shape = OutputShape(in, program);
    // Entries are shifted themselves.
    fields.shifts.push_back(
        program.entry_kind == EntryKind::kNone ? field_options.shift() : 0);
    if (program.source != nullptr) {
      program.source += fields.shifts.back() * program.sample_stride_bytes;
    }
    fields.programs.push_back(program);
    const std::string& name = dataset.fields()[source].name;
    fields.pipelines.push_back(
        {.field = PipelineName(spec.name, name, field_options),
         .transforms = transforms.back(),
         .layout = layout});
  }
  DATASETD_RETURN_IF_ERROR(LinkMixedLabels(fields.specs, transforms,
                                           absl::MakeSpan(fields.programs)));
  DATASETD_RETURN_IF_ERROR(
      CheckPairedSizes(dataset, fields.sources, fields.specs, fields.programs));
  return fields;
}

}  // namespace datasetd
