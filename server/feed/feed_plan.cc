#include "server/feed/feed_plan.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/augment_plan.h"
#include "server/dataset/mixture.h"
#include "server/feed/feed_options.h"
#include "server/feed/slot_layout.h"
#include "server/pipeline/mix_labels.h"
#include "server/pipeline/transforms_hash.h"

namespace datasetd {
namespace {

constexpr int64_t kMinDefaultPrefetch = 4;
constexpr int64_t kMaxDefaultPrefetch = 32;
// On a GPU one launch makes a third of the batches, and takes a turn of the
// device. So one with much memory has a deeper default, if that is a small part
// of what is free.
constexpr int64_t kMinDefaultPrefetchBytes = 64 << 20;
constexpr int64_t kMaxDefaultPrefetchBytes = 256 << 20;
constexpr uint64_t kLargeGpuBytes = 40'000'000'000;
constexpr int64_t kShareOfFree = 16;
// Slots beyond the prefetched ones: one in use, one being returned.
constexpr int64_t kExtraSlots = 2;
constexpr int64_t kSlabGranularityBytes = 2 << 20;
// Limits of a client's order beyond two batches per slot: batches, and total
// rows.
constexpr int64_t kMaxExtraBatches = 64;
constexpr int64_t kExtraRows = 65536;
constexpr int64_t kMaxDocuments = 0xFFFFFFFF;  // and rows of them

FeedPosition StartOf(const v1::FeedOptions& options) {
  return {options.start().epoch(), options.start().batch()};
}

SamplerOptions PlanSampler(const v1::FeedOptions& options,
                           const Dataset& dataset) {
  SamplerOptions sampler;
  sampler.num_samples = dataset.num_samples();
  sampler.batch_size = options.batch_size();
  sampler.shuffle = options.shuffle();
  sampler.drop_last = options.drop_last();
  sampler.unpadded = options.unpadded();
  sampler.seed = options.seed();
  sampler.rank = options.rank();
  sampler.world_size = WorldSize(options);
  sampler.first_position = options.first_position();
  if (options.has_rows_per_epoch()) {
    sampler.rows_per_epoch = options.rows_per_epoch();
  }
  return sampler;
}

// Also checks the number of samples, and sets it in `sampler`.
absl::StatusOr<SubsetTable::Options> PlanSubset(uint64_t size,
                                                const Dataset& dataset,
                                                SamplerOptions& sampler) {
  if (size > static_cast<uint64_t>(dataset.num_samples())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "subset_size is ", size, ", and dataset '", dataset.name(), "' has ",
        dataset.num_samples(),
        " samples: name each once; a client_order may repeat samples (in "
        "Python sampler=)"));
  }
  sampler.num_samples = static_cast<int64_t>(size);
  return SubsetTable::Options{.size = sampler.num_samples,
                              .dataset_size = dataset.num_samples(),
                              .dataset = dataset.name()};
}

// Also checks the number of samples, and sets it in `sampler`.
absl::StatusOr<WeightTable::Options> PlanWeights(const v1::WeightedOrder& order,
                                                 const Dataset& dataset,
                                                 SamplerOptions& sampler) {
  const auto dataset_size = static_cast<uint64_t>(dataset.num_samples());
  if (!order.lists_samples() && order.num_samples() != dataset_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("weighted_order: num_samples is ", order.num_samples(),
                     ", and dataset '", dataset.name(), "' has ", dataset_size,
                     " samples: give each a weight, or set lists_samples"));
  }
  if (order.num_samples() < 1 || order.num_samples() > WeightTable::kMaxSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "weighted_order: num_samples is ", order.num_samples(),
        "; there can be 1 to ", WeightTable::kMaxSize,
        " weights. Leave out samples whose weight is 0 by lists_samples, or "
        "draw the samples in the job and send them as a client_order (in "
        "Python: sampler=)"));
  }
  WeightTable::Options weights;
  weights.num_samples = static_cast<int64_t>(order.num_samples());
  weights.lists_samples = order.lists_samples();
  weights.dataset_size = dataset.num_samples();
  weights.dataset = dataset.name();
  sampler.num_samples = weights.num_samples;
  sampler.num_draws =
      order.has_num_draws() ? order.num_draws() : order.num_samples();
  return weights;
}

// Also sets the groups in `sampler`, which checks them.
GroupTable::Options PlanGroups(const v1::GroupOrder& order,
                               SamplerOptions& sampler) {
  sampler.group_size = order.group_size();
  sampler.num_groups =
      order.has_num_groups()
          ? order.num_groups()
          : std::max<uint64_t>(1, static_cast<uint64_t>(sampler.num_samples) /
                                      order.group_size());
  return {.num_samples = sampler.num_samples, .group_size = sampler.group_size};
}

// Also sets the windows in `sampler`.
absl::Status PlanWindowOrder(const v1::FeedOptions& options,
                             const FeedFields& fields, const Dataset& dataset,
                             SamplerOptions& sampler) {
  DATASETD_ASSIGN_OR_RETURN(
      const WindowPlan windows,
      PlanWindows(options.window_order(), options.shuffle(),
                  fields.largest_shift(), dataset.num_samples(),
                  dataset.name()));
  for (const size_t source : fields.sources) {
    if (dataset.field_memory(source).extents().size() < 2) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: field '", dataset.fields()[source].name,
        "' of dataset '", dataset.name(),
        "' is in several memories, and a window must be in one: load it with "
        "the residency device or pinned, and not over several devices"));
  }
  if (windows.is_random) {
    sampler.num_draws = windows.num_windows;
  } else if (options.window_order().has_blocks()) {
    sampler.num_samples = static_cast<int64_t>(windows.num_windows);
  }
  sampler.windows = windows;
  return absl::OkStatus();
}

// Also sets the documents in `sampler`, and the rows of them.
absl::StatusOr<DocumentTable::Options> PlanDocuments(
    const v1::FeedOptions& options, const FeedFields& fields,
    const Dataset& dataset, const Backend& backend, SamplerOptions& sampler) {
  const int64_t num_steps = dataset.num_samples();
  const uint64_t num_documents = options.subset_size();
  if (num_documents > static_cast<uint64_t>(num_steps) ||
      num_documents > kMaxDocuments || num_steps > kMaxEntrySteps) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: there are ", num_documents, " documents, and dataset '",
        dataset.name(), "' has ", num_steps,
        " steps: there can be as many documents as steps, up to ",
        kMaxDocuments, ", and ", kMaxEntrySteps, " steps"));
  }
  for (const size_t source : fields.sources) {
    if (dataset.IsFieldWholeOn(source, backend)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: field '", dataset.fields()[source].name,
        "' of dataset '", dataset.name(),
        "' is not in the memory of the feed's device, and documents must be: "
        "load it with the residency device"));
  }
  DocumentPlan documents = {
      .num_documents = static_cast<int64_t>(num_documents),
      .num_steps = num_steps,
      .length = static_cast<int64_t>(options.window_order().length()),
      .shuffle = options.shuffle()};
  const v1::DocumentOrder& order = options.window_order().documents();
  const auto length = static_cast<uint64_t>(documents.length);
  constexpr uint64_t kMaxPosition{kMaxEntryPosition};
  if (order.max_document() > std::min(length, kMaxPosition + 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: max_document is ", order.max_document(),
        "; it must be at most ", std::min(length, kMaxPosition + 1),
        ", so that a row holds whole documents"));
  }
  if ((order.max_document() > 0) != (order.num_rows() > 0) ||
      order.num_rows() > num_documents) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: num_rows is ", order.num_rows(), " with max_document ",
        order.max_document(), "; it must be within 1..", num_documents,
        ", the number of documents, if that is set, and else 0"));
  }
  documents.num_packed_rows = static_cast<int64_t>(order.num_rows());
  for (const FieldProgram& program : fields.programs) {
    if (program.entry_kind == EntryKind::kNumber)
      documents.has_sequences = true;
  }
  if (documents.num_rows() > kMaxDocuments) {
    return absl::InvalidArgumentError(absl::StrCat(
        "window_order: length is ", documents.length, ", and dataset '",
        dataset.name(), "' has ", documents.num_rows(), " rows of it; at most ",
        kMaxDocuments, " are possible"));
  }
  // Else documents are, and not their rows.
  sampler.shuffle = options.shuffle() && documents.is_packed();
  sampler.num_samples = documents.num_rows();
  sampler.documents = documents;
  return DocumentTable::Options{
      .num_documents = documents.num_documents,
      .num_steps = num_steps,
      .dataset = dataset.name(),
      .max_document = static_cast<int64_t>(order.max_document()),
      .row_length = documents.length,
      .num_rows = documents.num_packed_rows};
}

// Checks the start, and unless the client makes the order, what the sampler
// takes.
absl::Status CheckOrder(const v1::FeedOptions& options,
                        const SamplerOptions& sampler) {
  const FeedPosition start = StartOf(options);
  int64_t num_batches = 0;
  if (!options.has_client_order()) {
    DATASETD_ASSIGN_OR_RETURN(num_batches, Sampler::CountBatches(sampler));
  }
  if (start.epoch > kMaxEpoch ||
      (!options.has_client_order() &&
       start.batch > static_cast<uint64_t>(num_batches))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "start: epoch ", start.epoch, ", batch ", start.batch,
        " is out of range; an epoch has ", num_batches, " batches"));
  }
  return absl::OkStatus();
}

ClientOrder::Options PlanOrder(const v1::FeedOptions& options,
                               int64_t num_samples, int64_t num_slots) {
  ClientOrder::Options order;
  order.num_samples = num_samples;
  order.batch_size = options.batch_size();
  if (options.has_group_order()) {
    order.group_size = options.group_order().group_size();
  }
  order.rank = options.rank();
  order.world_size = WorldSize(options);
  order.start = StartOf(options);
  order.capacity = Narrow<uint32_t>(
      2 * num_slots + std::clamp<int64_t>(kExtraRows / options.batch_size(), 1,
                                          kMaxExtraBatches));
  return order;
}

// A group would be of the samples that it has in part, too.
absl::Status CheckUnmixed(absl::Span<const FieldProgram> programs,
                          const v1::SlotLayout& layout) {
  for (size_t f = 0; f < programs.size(); ++f) {
    if (programs[f].mix.kind == MixKind::kNone) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "group_order: the ops of field '",
        layout.fields(static_cast<int>(f)).name(),
        "' mix the samples of a batch (MixUp, CutMix), and so of its groups: "
        "leave them out, or mix in the training step"));
  }
  return absl::OkStatus();
}

// What is compiled of the options of all samples, or of some parts' of a
// mixture.
struct Compiled {
  FeedFields fields;
  v1::SlotLayout layout;
  std::unique_ptr<AugmentProgram> program;  // without sources, if not in place
};

absl::StatusOr<Compiled> Compile(const v1::FeedOptions& options,
                                 const FieldOptionsMap& field_options,
                                 const Dataset& dataset,
                                 const TransformLimits& limits,
                                 const NoiseFinder& noise) {
  Compiled compiled;
  DATASETD_ASSIGN_OR_RETURN(
      compiled.fields,
      CompileFeedFields(
          dataset, {options.field_names().begin(), options.field_names().end()},
          field_options, /*skips_packed=*/false, limits,
          options.has_window_order() ? &options.window_order() : nullptr,
          noise));
  std::vector<FieldProgram>& programs = compiled.fields.programs;
  DATASETD_RETURN_IF_ERROR(
      CheckMixedLabels(dataset, compiled.fields.sources, programs));
  DATASETD_ASSIGN_OR_RETURN(
      compiled.layout,
      ComputeSlotLayout(compiled.fields.specs, absl::MakeSpan(programs),
                        options.batch_size()));
  compiled.program = std::make_unique<AugmentProgram>();
  AugmentProgram& program = *compiled.program;
  program.seed = options.seed();
  program.indices_offset_bytes = -1;
  program.num_fields = Narrow<int32_t>(programs.size());
  std::copy(programs.begin(), programs.end(), program.fields);
  return compiled;
}

// The samples of some parts of a mixture.
absl::StatusOr<std::shared_ptr<const Dataset>> ChosenParts(const Dataset& whole,
                                                           uint64_t chosen,
                                                           Backend* device) {
  std::vector<std::shared_ptr<const Dataset>> parts;
  std::string name;
  for (size_t d = 0; d < whole.parts().size(); ++d) {
    if ((chosen >> d & 1) == 0) continue;
    if (parts.empty()) name = whole.parts()[d]->name();
    parts.push_back(whole.parts()[d]);
  }
  return MakeMixture(std::move(parts), std::move(name), /*order=*/"", device);
}

std::string Describe(const v1::SlotField& field) {
  return absl::StrCat("'", field.name(), "' is ",
                      DtypeName(static_cast<Dtype>(field.dtype())), " (",
                      absl::StrJoin(field.shape(), ", "), ")");
}

// Checks that parts with pipelines of their own give one batch together.
absl::Status CheckAlike(const Compiled& first, const std::string& first_name,
                        const Compiled& other, const std::string& name) {
  for (const Compiled* compiled : {&first, &other}) {
    for (size_t f = 0; f < compiled->fields.programs.size(); ++f) {
      if (compiled->fields.programs[f].mix.kind == MixKind::kNone) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("mixture: field '", compiled->fields.specs[f].name,
                       "' of dataset '", compiled == &first ? first_name : name,
                       "' has MixUp or CutMix, which mixes samples of several "
                       "datasets: give "
                       "all datasets the same transforms, or mix in the job"));
    }
  }
  const auto& ours = first.layout.fields();
  const auto& theirs = other.layout.fields();
  for (int f = 0; f < std::max(ours.size(), theirs.size()); ++f) {
    const bool is_there = f < ours.size() && f < theirs.size();
    if (is_there &&
        ours[f].SerializeAsString() == theirs[f].SerializeAsString()) {
      continue;
    }
    const auto text = [&](const auto& fields) {
      return f < fields.size() ? Describe(fields[f]) : "nothing";
    };
    const bool is_layout = is_there && Describe(ours[f]) == Describe(theirs[f]);
    return absl::InvalidArgumentError(absl::StrCat(
        "mixture: the transforms of dataset '", first_name, "' make ",
        text(ours), ", and those of dataset '", name, "' make ", text(theirs),
        is_layout ? " in another layout" : "",
        ": give the transforms of all datasets one output"));
  }
  return absl::OkStatus();
}

// Compiles the options of each group of parts.
absl::StatusOr<std::vector<Compiled>> CompileParts(
    const v1::FeedOptions& options, const std::vector<PartFields>& groups,
    const Dataset& dataset, const TransformLimits& limits, Backend* device,
    const NoiseFinder& noise) {
  std::vector<Compiled> all;
  std::string first_name;
  for (const PartFields& group : groups) {
    DATASETD_ASSIGN_OR_RETURN(const std::shared_ptr<const Dataset> parts,
                              ChosenParts(dataset, group.parts, device));
    absl::StatusOr<Compiled> compiled =
        Compile(options, group.options, *parts, limits, noise);
    if (!compiled.ok()) {
      return absl::Status(
          compiled.status().code(),
          absl::StrCat("mixture, transforms of dataset '", parts->name(),
                       "': ", compiled.status().message()));
    }
    if (all.empty()) first_name = parts->name();
    if (groups.size() > 1) {
      compiled->program->mixture.own_parts = group.parts;
      for (FieldPipeline& pipeline : compiled->fields.pipelines) {
        absl::StrAppend(&pipeline.field, " of parts ", group.parts);
      }
    }
    all.push_back(*std::move(compiled));
    if (all.size() == 1) continue;
    DATASETD_RETURN_IF_ERROR(
        CheckAlike(all.front(), first_name, all.back(), parts->name()));
  }
  return all;
}

// Lets a program find the samples of a mixture's parts, and name them.
void FillMixture(const Dataset& dataset, absl::Span<const size_t> sources,
                 bool is_in_place, AugmentProgram* program) {
  MixtureTable& mixture = program->mixture;
  mixture.num_parts = Narrow<int32_t>(dataset.parts().size());
  mixture.is_in_place = is_in_place && mixture.num_parts > 0;
  int64_t begin = 0;
  for (size_t d = 0; d < dataset.parts().size(); ++d) {
    const Dataset& part = *dataset.parts()[d];
    mixture.begin[d] = begin;
    begin += part.num_samples();
    for (size_t f = 0; is_in_place && f < sources.size(); ++f) {
      FieldProgram& field = program->fields[f];
      field.part_sources[d] = part.field_data(sources[f]);
      field.part_ragged[d] = part.field_index_data(sources[f]);
      // Not read; null means that the field is not ragged.
      field.source = field.part_sources[0];
      field.ragged = field.part_ragged[0];
    }
  }
}

}  // namespace

int64_t DefaultPrefetchBytes(const DeviceInfo& device, uint64_t free_bytes) {
  if (device.is_host || device.total_bytes < kLargeGpuBytes) {
    return kMinDefaultPrefetchBytes;
  }
  return std::clamp(SaturatingCast<int64_t>(free_bytes) / kShareOfFree,
                    kMinDefaultPrefetchBytes, kMaxDefaultPrefetchBytes);
}

absl::StatusOr<FeedPlan> PlanFeed(
    const v1::FeedOptions& options, const FieldOptionsMap& field_options,
    std::shared_ptr<const Dataset> held, const TransformLimits& limits,
    Backend* device, uint64_t free_bytes, int64_t num_slots,
    const std::vector<PartFields>& part_fields, const NoiseDatasets& noise) {
  const Dataset& dataset = *held;
  if (device == nullptr) device = &dataset.backend();
  const Backend& backend = *device;
  const NoiseFinder find_noise = noise.FinderOn(device);
  std::vector<Compiled> compiled;
  if (part_fields.empty()) {
    DATASETD_ASSIGN_OR_RETURN(
        compiled.emplace_back(),
        Compile(options, field_options, dataset, limits, find_noise));
  } else {
    DATASETD_ASSIGN_OR_RETURN(
        compiled, CompileParts(options, part_fields, dataset, limits, device,
                               find_noise));
  }
  const FeedFields& fields = compiled.front().fields;
  FeedPlan plan;
  plan.layout = std::move(compiled.front().layout);
  std::vector<FieldPipeline> pipelines;
  for (const Compiled& one : compiled) {
    pipelines.insert(pipelines.end(), one.fields.pipelines.begin(),
                     one.fields.pipelines.end());
  }
  plan.transforms_hash = TransformsHash(pipelines);
  if (options.has_group_order()) {
    DATASETD_RETURN_IF_ERROR(CheckUnmixed(fields.programs, plan.layout));
  }

  const auto stride = static_cast<int64_t>(plan.layout.slot_stride_bytes());
  const int64_t prefetch_bytes =
      DefaultPrefetchBytes(backend.info(), free_bytes);
  plan.prefetch =
      options.has_prefetch()
          ? options.prefetch()
          : std::clamp<int64_t>(prefetch_bytes / stride, kMinDefaultPrefetch,
                                prefetch_bytes > kMinDefaultPrefetchBytes
                                    ? int64_t{kMaxPrefetch}
                                    : kMaxDefaultPrefetch);
  plan.num_slots = num_slots > 0 ? num_slots : plan.prefetch + kExtraSlots;
  plan.layout.set_num_slots(Narrow<uint32_t>(plan.num_slots));
  plan.slab_bytes = SaturatingRoundUp(
      SaturatingMultiply(plan.num_slots, stride), kSlabGranularityBytes);

  AugmentProgram& program = *compiled.front().program;
  program.indices_offset_bytes =
      static_cast<int64_t>(plan.layout.indices_offset_bytes());
  plan.feed.sampler = PlanSampler(options, dataset);
  if (options.has_mixture()) {
    DATASETD_ASSIGN_OR_RETURN(plan.feed.sampler.mixture,
                              PlanMixture(options.mixture(), dataset.parts()));
  }
  if (plan.feed.sampler.mixture.has_value()) {
    const std::vector<uint64_t>& rows = plan.feed.sampler.mixture->num_rows;
    plan.feed.sampler.num_draws =
        std::accumulate(rows.begin(), rows.end(), uint64_t{0});
  }
  if (options.window_order().has_documents()) {
    DATASETD_ASSIGN_OR_RETURN(
        plan.documents,
        PlanDocuments(options, fields, dataset, backend, plan.feed.sampler));
    plan.array_bytes = DocumentTable::SizeBytes(*plan.documents);
    plan.feed.row_entries = plan.feed.sampler.documents->row_entries();
    program.row_entries = Narrow<int32_t>(plan.feed.row_entries);
  } else if (options.subset_size() != 0) {
    DATASETD_ASSIGN_OR_RETURN(
        plan.subset,
        PlanSubset(options.subset_size(), dataset, plan.feed.sampler));
    plan.array_bytes = SubsetTable::SizeBytes(*plan.subset);
  }
  if (options.has_weighted_order()) {
    DATASETD_ASSIGN_OR_RETURN(
        plan.weights,
        PlanWeights(options.weighted_order(), dataset, plan.feed.sampler));
    plan.array_bytes = WeightTable::SizeBytes(*plan.weights);
  }
  if (options.has_group_order() && !options.has_client_order()) {
    plan.groups = PlanGroups(options.group_order(), plan.feed.sampler);
    plan.array_bytes =
        SaturatingAdd(plan.array_bytes, GroupTable::SizeBytes(*plan.groups));
  }
  plan.num_samples = plan.feed.sampler.num_samples;
  if (options.has_window_order() && !plan.documents.has_value()) {
    DATASETD_RETURN_IF_ERROR(
        PlanWindowOrder(options, fields, dataset, plan.feed.sampler));
    const WindowPlan& windows = *plan.feed.sampler.windows;
    plan.feed.window_steps = windows.num_steps;
    plan.num_samples = static_cast<int64_t>(
        options.has_client_order() ? windows.num_starts : windows.num_windows);
  }
  plan.feed.backend = device;
  plan.feed.sources = fields.sources;
  plan.feed.staging = PlanStaging(
      dataset, backend, fields.sources, program, options.batch_size(),
      plan.num_slots,
      {.shifts = fields.shifts, .num_steps = plan.feed.window_steps});
  int64_t team_bytes = 0;
  for (Compiled& one : compiled) {
    FillMixture(dataset, fields.sources,
                /*is_in_place=*/!plan.feed.staging.is_needed(),
                one.program.get());
    team_bytes = std::max(team_bytes, TeamScratchBytes(*one.program));
    plan.feed.sample_operations = std::max(plan.feed.sample_operations,
                                           EstimatedOperations(*one.program));
  }
  plan.feed.num_slots = plan.layout.num_slots();
  plan.feed.slot_stride_bytes = plan.layout.slot_stride_bytes();
  plan.feed.start = StartOf(options);
  plan.feed.draws_by_sample = options.client_order().draws_by_sample();

  plan.scratch_bytes = SaturatingSum(
      Feed::IndexBytes(backend, plan.num_slots, options.batch_size(),
                       plan.feed.staging.is_needed()),
      Feed::EntryBytes(
          backend, plan.num_slots,
          SaturatingMultiply(options.batch_size(), plan.feed.row_entries)),
      plan.feed.staging.size_bytes(),
      SaturatingMultiply(compiled.size(), sizeof(DeviceProgram)),
      Feed::LaunchBytes(plan.num_slots),
      Sampler::TableBytes(plan.feed.sampler));
  if (backend.info().is_host) {
    plan.scratch_bytes = SaturatingAdd(
        plan.scratch_bytes,
        PlanScratch(team_bytes, backend.max_teams(team_bytes)).size_bytes);
  } else {
    plan.team_bytes = team_bytes;
  }
  if (options.has_client_order()) {
    plan.order = PlanOrder(options, plan.num_samples, plan.num_slots);
    plan.scratch_bytes =
        SaturatingAdd(plan.scratch_bytes, ClientOrder::SizeBytes(*plan.order));
  }
  DATASETD_RETURN_IF_ERROR(CheckOrder(options, plan.feed.sampler));
  plan.feed.program = std::move(compiled.front().program);
  for (size_t i = 1; i < compiled.size(); ++i) {
    plan.feed.other_programs.push_back(std::move(compiled[i].program));
  }
  plan.feed.dataset = std::move(held);
  return plan;
}

}  // namespace datasetd
