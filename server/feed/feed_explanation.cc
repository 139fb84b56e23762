#include "server/feed/feed_explanation.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "cuda/kernels/program/crop.h"
#include "server/order/window_order.h"
#include "server/pipeline/explain.h"
#include "server/pipeline/mix_labels.h"

namespace datasetd {
namespace {

// The limit of an answer: some 10 MB while it is made.
constexpr size_t kMaxExplainedOps = 20'000;

absl::Status CheckNumOps(size_t num_samples, size_t num_ops) {
  const size_t most = kMaxExplainedOps / num_ops;
  if (num_samples <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "indices: ", num_samples, " samples of ", num_ops, " ops are more than ",
      kMaxExplainedOps, "; ask for at most ", most, " samples at a time"));
}

size_t CountOps(
    const google::protobuf::RepeatedPtrField<v1::Transform>& transforms) {
  size_t count = 0;
  for (const v1::Transform& transform : transforms) {
    count += 1 + CountOps(transform.random_apply().transforms());
  }
  return count;
}

bool HasCrop(const FieldProgram& field) {
  return field.crop_kind != CropKind::kNone && !field.has_length;
}

// Returns how many ops a sample's explanation has at most. An op may be many
// steps.
size_t CountOps(const FieldProgram& field) {
  return static_cast<size_t>(field.num_steps + field.num_moves +
                             field.num_value_ops) +
         (field.mix.kind != MixKind::kNone ? 1 : 0) + (HasCrop(field) ? 1 : 0);
}

// Returns the fields to compile, in the order of a batch: those with options,
// and the labels that they mix. While a feed has room, the dataset's others are
// compiled, too, and errors name them; with `has_windows` but those that
// windows exclude.
std::vector<std::string> FieldsToCompile(const Dataset& dataset,
                                         const FieldOptionsMap& options,
                                         bool has_windows) {
  std::set<std::string> needed;
  for (const auto& [name, field] : options) {
    needed.insert(name);
    for (const v1::Transform& transform : field.transforms()) {
      if (std::string labels = MixedLabels(transform); !labels.empty()) {
        needed.insert(std::move(labels));
      }
    }
  }
  constexpr size_t kMost{kMaxFields};
  size_t room = kMost - std::min(kMost, needed.size());
  std::vector<std::string> names;
  for (const FieldSpec& field : dataset.fields()) {
    if (needed.erase(field.name) == 0) {
      if (room == 0) continue;
      if (has_windows && (field.is_image || field.is_packed())) continue;
      --room;
    }
    names.push_back(field.name);
  }
  // Views.
  for (const auto& [name, field] : options) {
    if (needed.count(name) > 0) names.push_back(name);
  }
  return names;
}

void DescribeDraw(const OpDraw& draw, v1::DrawnOp* op) {
  op->set_position(static_cast<uint32_t>(draw.position));
  op->set_name(draw.name);
  op->set_is_applied(draw.is_applied);
  for (const auto& [name, values] : draw.parameters) {
    v1::DrawnParameter* const parameter = op->add_parameters();
    parameter->set_name(name);
    parameter->mutable_values()->Assign(values.begin(), values.end());
  }
}

void DescribeSteps(const char* name, int64_t start, int64_t length,
                   v1::DrawnOp* op) {
  const auto add = [&](const char* parameter_name, int64_t value) {
    v1::DrawnParameter* const parameter = op->add_parameters();
    parameter->set_name(parameter_name);
    parameter->add_values(static_cast<double>(value));
  };
  op->set_name(name);
  op->set_is_applied(true);
  add("start", start);
  add("length", length);
}

absl::Status CheckIndices(const v1::ExplainTransformsRequest& request,
                          uint64_t bound, const char* what) {
  for (const uint64_t index : request.indices()) {
    if (index < bound) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "indices: ", index, " is out of range; dataset '", request.dataset(),
        "' has ", bound, " ", what, ", from 0"));
  }
  return absl::OkStatus();
}

// Returns the windows that are explained, of which `fields` are compiled, and
// checks the indices.
absl::StatusOr<WindowPlan> WindowsOf(
    const v1::ExplainTransformsRequest& request, const FeedFields& fields,
    const Dataset& dataset) {
  // Draws of an epoch have 32 bits.
  constexpr uint64_t kNumRows = uint64_t{1} << 32;
  DATASETD_ASSIGN_OR_RETURN(
      WindowPlan windows, PlanWindows(request.window_order(), /*shuffle=*/false,
                                      fields.largest_shift(),
                                      dataset.num_samples(), dataset.name()));
  DATASETD_RETURN_IF_ERROR(
      windows.is_random
          ? CheckIndices(request, kNumRows, "rows at most in an epoch")
          : CheckIndices(request, windows.num_starts,
                         "steps at which a window can begin"));
  return windows;
}

}  // namespace

absl::StatusOr<v1::ExplainTransformsResponse> ExplainFeed(
    const v1::ExplainTransformsRequest& request,
    const FieldOptionsMap& field_options, const Dataset& dataset,
    const TransformLimits& limits, const NoiseDatasets& noise) {
  size_t num_ops = 1;
  for (const auto& [name, field] : field_options) {
    num_ops += CountOps(field.transforms());
  }
  const absl::Span<const uint64_t> indices = request.indices();
  DATASETD_RETURN_IF_ERROR(CheckNumOps(indices.size(), num_ops));
  const v1::WindowOrder* const order =
      request.has_window_order() ? &request.window_order() : nullptr;
  if (order == nullptr) {
    DATASETD_RETURN_IF_ERROR(CheckIndices(
        request, static_cast<uint64_t>(dataset.num_samples()), "samples"));
  } else if (order->has_documents()) {
    return absl::InvalidArgumentError(
        "window_order: rows of documents have no ops, and draw nothing");
  }
  DATASETD_ASSIGN_OR_RETURN(
      const FeedFields fields,
      CompileFeedFields(
          dataset, FieldsToCompile(dataset, field_options, order != nullptr),
          field_options, /*skips_packed=*/true, limits, order,
          noise.FinderOn(nullptr)));
  WindowPlan windows;
  if (order != nullptr) {
    DATASETD_ASSIGN_OR_RETURN(windows, WindowsOf(request, fields, dataset));
  }
  const std::vector<FieldProgram>& programs = fields.programs;
  num_ops = 1;
  for (const FieldProgram& field : programs) {
    num_ops += CountOps(field) + (order != nullptr ? 1 : 0);
  }
  DATASETD_RETURN_IF_ERROR(CheckNumOps(indices.size(), num_ops));
  const auto program = std::make_unique<AugmentProgram>();
  program->seed = request.seed();
  program->num_fields = static_cast<int32_t>(programs.size());
  std::copy(programs.begin(), programs.end(), program->fields);
  v1::ExplainTransformsResponse response;
  for (const uint64_t index : indices) {
    const auto sample = static_cast<int64_t>(index);
    for (size_t f = 0; f < programs.size(); ++f) {
      const RaggedIndex* const ragged = dataset.field_index(fields.sources[f]);
      if (ragged == nullptr) continue;
      const ImageSize size = ragged->size(sample);
      program->fields[f].sample_steps = static_cast<int32_t>(size.height);
      if (programs[f].is_image) {
        GiveSize(programs[f], size, &program->fields[f]);
      }
    }
    DATASETD_ASSIGN_OR_RETURN(const std::vector<OpDraw> draws,
                              ExplainSample(*program, request.epoch(), sample));
    v1::ExplainedSample* const explained = response.add_samples();
    explained->set_index(index);
    int64_t start = sample;
    if (windows.is_random) {
      DrawStarts(windows, request.seed(), request.epoch(), index, /*step=*/1,
                 {&start, 1});
    }
    for (size_t f = 0; f < programs.size(); ++f) {
      if (order != nullptr) {
        v1::DrawnOp* const op = explained->add_ops();
        op->set_field(fields.specs[f].name);
        DescribeSteps("Window", start + fields.shifts[f],
                      static_cast<int64_t>(order->length()), op);
      }
      if (!HasCrop(programs[f])) continue;
      const RaggedIndex* const ragged = dataset.field_index(fields.sources[f]);
      v1::DrawnOp* const op = explained->add_ops();
      op->set_field(fields.specs[f].name);
      const auto steps =
          static_cast<int32_t>(ragged == nullptr ? programs[f].sample_steps
                                                 : ragged->size(sample).height);
      DescribeSteps("Crop",
                    FirstCropStep(programs[f], steps, request.seed(),
                                  request.epoch(), sample),
                    std::min(steps, programs[f].crop_length), op);
    }
    for (const OpDraw& draw : draws) {
      v1::DrawnOp* const op = explained->add_ops();
      op->set_field(fields.specs[static_cast<size_t>(draw.field)].name);
      DescribeDraw(draw, op);
    }
  }
  return response;
}

}  // namespace datasetd
