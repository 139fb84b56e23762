#include "server/pipeline/mix_labels.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "cuda/backend/backend.h"
#include "cuda/kernels/program/value.h"

namespace datasetd {
namespace {

constexpr int64_t kReadBytes = 1 << 20;

struct MixOptions {
  std::string labels;
  int64_t num_classes = 0;
};

MixOptions MixOptionsOf(const v1::Transform& transform) {
  if (transform.has_mix_up()) {
    return {transform.mix_up().labels(), transform.mix_up().num_classes()};
  }
  return {transform.cut_mix().labels(), transform.cut_mix().num_classes()};
}

bool IsClass(const FieldSpec& field) {
  return !field.is_image && field.shape.empty() &&
         !IsFloatingPoint(field.dtype);
}

// True if both mixes of a batch draw the same values.
bool DrawsAlike(const FieldProgram& one, const FieldProgram& other) {
  return one.mix.kind == other.mix.kind && one.mix.alpha == other.mix.alpha &&
         one.mix.per_sample == other.mix.per_sample &&
         one.mix.op_index == other.mix.op_index;
}

std::string NamesOfClasses(absl::Span<const FieldSpec> fields) {
  std::string names;
  for (const FieldSpec& field : fields) {
    if (!IsClass(field)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", field.name);
  }
  return names.empty() ? "none" : names;
}

// Calls `look` with the index and the label of each sample of a field of
// labels, until it returns false.
template <typename Look>
absl::Status ReadLabels(const Dataset& dataset, size_t field, Look look) {
  const FieldSpec& spec = dataset.fields()[field];
  const int64_t stride = spec.sample_bytes();
  const int64_t chunk = kReadBytes / stride;
  DATASETD_ASSIGN_OR_RETURN(const std::unique_ptr<HostMemory> memory,
                            dataset.backend().AllocateHost(kReadBytes));
  FieldReader reader({});  // declared last: waits for its copies first
  for (int64_t first = 0; first < dataset.num_samples(); first += chunk) {
    const int64_t count = std::min(chunk, dataset.num_samples() - first);
    DATASETD_RETURN_IF_ERROR(reader.Read(dataset.field_memory(field),
                                         first * stride, count * stride,
                                         memory->data()));
    for (int64_t i = 0; i < count; ++i) {
      const auto label = static_cast<int64_t>(
          CastElementBits(memory->data(), spec.dtype, Dtype::kInt64, i));
      if (!look(first + i, label)) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset::ValueRange> FindRange(const Dataset& dataset,
                                              size_t field) {
  Dataset::ValueRange range;
  DATASETD_RETURN_IF_ERROR(
      ReadLabels(dataset, field, [&](int64_t, int64_t label) {
        range.smallest = std::min(range.smallest, label);
        range.largest = std::max(range.largest, label);
        return true;
      }));
  return range;
}

}  // namespace

std::string MixedLabels(const v1::Transform& transform) {
  return MixOptionsOf(transform).labels;
}

absl::Status LinkMixedLabels(absl::Span<const FieldSpec> fields,
                             absl::Span<const Transforms> transforms,
                             absl::Span<FieldProgram> programs) {
  Require(
      fields.size() == programs.size() && fields.size() == transforms.size(),
      "a program and transforms for each field");
  for (size_t f = 0; f < fields.size(); ++f) {
    MixProgram& mix = programs[f].mix;
    if (mix.kind == MixKind::kNone) continue;
    const v1::Transform& op = transforms[f].back();
    const MixOptions options = MixOptionsOf(op);
    const auto error = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat(
          "field '", fields[f].name, "', transforms[", transforms[f].size() - 1,
          "] ", TransformName(op), ": labels: '", options.labels, "' ", what));
    };
    const auto found = std::find_if(
        fields.begin(), fields.end(),
        [&](const FieldSpec& field) { return field.name == options.labels; });
    if (found == fields.end() || !IsClass(*found)) {
      return error(
          absl::StrCat(found == fields.end() ? "is no field of the feed"
                                             : "is not one integer per sample",
                       "; its fields of labels: ", NamesOfClasses(fields)));
    }
    const size_t index = static_cast<size_t>(found - fields.begin());
    FieldProgram& labels = programs[index];
    if (labels.num_classes != 0) {
      const size_t first =
          std::find_if(programs.begin(), programs.end(),
                       [&](const FieldProgram& program) {
                         return program.mix.kind != MixKind::kNone &&
                                program.mix.labels_field ==
                                    static_cast<int32_t>(index);
                       }) -
          programs.begin();
      const FieldProgram& writer = programs[first];
      if (!DrawsAlike(writer, programs[f]) ||
          labels.num_classes != options.num_classes) {
        return error(absl::StrCat(
            "is mixed by field '", fields[first].name,
            "' already, and a batch "
            "has its labels once: give both images one op, with fields and "
            "thus one draw_id"));
      }
      if (mix.kind == MixKind::kCutMix &&
          (writer.out_height != programs[f].out_height ||
           writer.out_width != programs[f].out_width)) {
        return error(absl::StrCat(
            "belongs to images of one size, whose box is the same: field '",
            fields[first].name, "' has ", writer.out_height, "x",
            writer.out_width, " here, this one ", programs[f].out_height, "x",
            programs[f].out_width));
      }
      continue;  // the other image writes the labels
    }
    if (!transforms[index].empty()) {
      return error(
          "has transforms of its own, and mixing makes it float32 "
          "[num_classes]: leave them out");
    }
    mix.labels_field = static_cast<int32_t>(index);
    labels.num_classes = static_cast<int32_t>(options.num_classes);
    labels.out_width = labels.num_classes;
    labels.out_dtype = Dtype::kFloat32;
  }
  return absl::OkStatus();
}

absl::Status CheckMixedLabels(const Dataset& dataset,
                              absl::Span<const size_t> sources,
                              absl::Span<const FieldProgram> programs) {
  for (const auto& part : dataset.parts()) {
    DATASETD_RETURN_IF_ERROR(CheckMixedLabels(*part, sources, programs));
  }
  if (!dataset.parts().empty()) return absl::OkStatus();
  for (size_t f = 0; f < programs.size(); ++f) {
    const int64_t num_classes = programs[f].num_classes;
    if (num_classes == 0) continue;
    const size_t field = sources[f];
    DATASETD_ASSIGN_OR_RETURN(
        const Dataset::ValueRange range,
        dataset.ValueRangeOf(field, [&] { return FindRange(dataset, field); }));
    if (range.smallest >= 0 && range.largest < num_classes) continue;
    absl::Status error;
    DATASETD_RETURN_IF_ERROR(
        ReadLabels(dataset, field, [&](int64_t index, int64_t label) {
          if (label >= 0 && label < num_classes) return true;
          error = absl::InvalidArgumentError(absl::StrCat(
              "num_classes is ", num_classes, ", but sample ", index,
              " of dataset '", dataset.name(), "' has the label ", label,
              " in field '", dataset.fields()[field].name,
              "': labels must be within 0..num_classes - 1"));
          return false;
        }));
    return error;
  }
  return absl::OkStatus();
}

}  // namespace datasetd
