#include "server/feed/feed_plan.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/program/augment_plan.h"
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
                               const Dataset& dataset, int64_t num_slots) {
  ClientOrder::Options order;
  order.num_samples = dataset.num_samples();
  order.batch_size = options.batch_size();
  order.rank = options.rank();
  order.world_size = WorldSize(options);
  order.start = StartOf(options);
  order.capacity = Narrow<uint32_t>(
      2 * num_slots + std::clamp<int64_t>(kExtraRows / options.batch_size(), 1,
                                          kMaxExtraBatches));
  return order;
}

}  // namespace

int64_t DefaultPrefetchBytes(const DeviceInfo& device, uint64_t free_bytes) {
  if (device.is_host || device.total_bytes < kLargeGpuBytes) {
    return kMinDefaultPrefetchBytes;
  }
  return std::clamp(SaturatingCast<int64_t>(free_bytes) / kShareOfFree,
                    kMinDefaultPrefetchBytes, kMaxDefaultPrefetchBytes);
}

absl::StatusOr<FeedPlan> PlanFeed(const v1::FeedOptions& options,
                                  const FieldOptionsMap& field_options,
                                  std::shared_ptr<const Dataset> held,
                                  const TransformLimits& limits,
                                  Backend* device, uint64_t free_bytes,
                                  int64_t num_slots) {
  const Dataset& dataset = *held;
  if (device == nullptr) device = &dataset.backend();
  const Backend& backend = *device;
  DATASETD_ASSIGN_OR_RETURN(
      FeedFields fields,
      CompileFeedFields(
          dataset, {options.field_names().begin(), options.field_names().end()},
          field_options, /*skips_packed=*/false, limits));
  std::vector<FieldProgram>& programs = fields.programs;
  DATASETD_RETURN_IF_ERROR(CheckMixedLabels(dataset, fields.sources, programs));
  FeedPlan plan;
  DATASETD_ASSIGN_OR_RETURN(
      plan.layout, ComputeSlotLayout(fields.specs, absl::MakeSpan(programs),
                                     options.batch_size()));
  plan.transforms_hash = TransformsHash(fields.pipelines);

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

  plan.feed.program = std::make_unique<AugmentProgram>();
  AugmentProgram& program = *plan.feed.program;
  program.seed = options.seed();
  program.indices_offset_bytes =
      static_cast<int64_t>(plan.layout.indices_offset_bytes());
  program.num_fields = Narrow<int32_t>(programs.size());
  std::copy(programs.begin(), programs.end(), program.fields);
  plan.feed.sampler = PlanSampler(options, dataset);
  if (options.subset_size() != 0) {
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
  plan.feed.backend = device;
  plan.feed.staging = PlanStaging(dataset, backend, fields.sources, program,
                                  options.batch_size(), plan.num_slots);
  plan.feed.num_slots = plan.layout.num_slots();
  plan.feed.sample_operations = EstimatedOperations(program);
  plan.feed.slot_stride_bytes = plan.layout.slot_stride_bytes();
  plan.feed.start = StartOf(options);
  plan.feed.draws_by_sample = options.client_order().draws_by_sample();

  plan.scratch_bytes = SaturatingSum(
      Feed::IndexBytes(backend, plan.num_slots, options.batch_size(),
                       plan.feed.staging.is_needed()),
      plan.feed.staging.size_bytes(), sizeof(DeviceProgram),
      Feed::LaunchBytes(plan.num_slots),
      Sampler::TableBytes(plan.feed.sampler));
  if (backend.info().is_host) {
    plan.scratch_bytes = SaturatingAdd(
        plan.scratch_bytes,
        PlanScratch(program, backend.max_teams(TeamScratchBytes(program)))
            .size_bytes);
  } else {
    plan.team_bytes = TeamScratchBytes(program);
  }
  if (options.has_client_order()) {
    plan.order = PlanOrder(options, dataset, plan.num_slots);
    plan.scratch_bytes =
        SaturatingAdd(plan.scratch_bytes, ClientOrder::SizeBytes(*plan.order));
  }
  DATASETD_RETURN_IF_ERROR(CheckOrder(options, plan.feed.sampler));
  plan.feed.dataset = std::move(held);
  return plan;
}

}  // namespace datasetd
