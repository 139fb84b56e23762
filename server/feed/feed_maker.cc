#include "server/feed/feed_maker.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/feed/feed_options.h"
#include "server/feed/slab_allocation.h"

namespace datasetd {
namespace {

constexpr size_t kMaxKeptTransformsBytes = 16 * 1024;

// Memory that is not exported, as a feed's slab.
class PrivateSlab final : public ExportedMemory {
 public:
  explicit PrivateSlab(std::unique_ptr<DeviceMemory> memory)
      : memory_(std::move(memory)) {}
  uint8_t* data() const override { return memory_->data(); }
  size_t size_bytes() const override { return memory_->size_bytes(); }
  ExportKind export_kind() const override { return ExportKind::kMemfd; }
  absl::Span<const uint8_t> ipc_handle() const override { return {}; }
  int file_descriptor() const override { return -1; }

 private:
  const std::unique_ptr<DeviceMemory> memory_;
};

// For FeedRecord::transforms.
std::optional<std::string> KeptTransforms(const v1::FeedOptions& options) {
  const auto& parts = options.mixture().parts();
  if (std::any_of(parts.begin(), parts.end(),
                  [](const auto& part) { return part.has_own_fields(); })) {
    return std::nullopt;
  }
  v1::GetFeedTransformsResponse transforms;
  *transforms.mutable_fields() = options.fields();
  if (options.has_window_order()) {
    *transforms.mutable_window_order() = options.window_order();
  }
  if (transforms.ByteSizeLong() > kMaxKeptTransformsBytes) return std::nullopt;
  return transforms.SerializeAsString();
}

// Lets the arrays fill the table, which is returned, and keeps them alive.
std::shared_ptr<const WeightTable> AddWeights(
    const std::shared_ptr<WeightTable>& table,
    const std::shared_ptr<OrderArrays>& arrays) {
  arrays->Add<double>("weights", table->options().num_samples,
                      [table](auto weights) { return table->Append(weights); });
  arrays->OnRead([table] { return table->Finish(); });
  return {arrays, table.get()};
}

// Makes the tables of the sampler, which the arrays fill, in the order of
// proto/attach_protocol.h.
void AddArrays(const FeedPlan& plan,
               const std::shared_ptr<OrderArrays>& shared_arrays,
               SamplerOptions& sampler) {
  OrderArrays& arrays = *shared_arrays;
  if (plan.subset.has_value()) {
    auto table = std::make_shared<SubsetTable>(*plan.subset);
    arrays.Add<int64_t>("subset", plan.subset->size, [table](auto indices) {
      return table->Append(indices);
    });
    sampler.subset = Subset(table, &table->samples());
  }
  if (plan.documents.has_value()) {
    auto table = std::make_shared<DocumentTable>(*plan.documents);
    arrays.Add<int64_t>("subset", plan.documents->num_documents,
                        [table](auto starts) { return table->Append(starts); });
    arrays.OnRead([table] { return table->Finish(); });
    sampler.documents->table = std::move(table);
  }
  if (plan.weights.has_value()) {
    auto table = std::make_shared<WeightTable>(*plan.weights);
    sampler.weights = AddWeights(table, shared_arrays);
    if (plan.weights->lists_samples) {
      arrays.Add<int64_t>(
          "samples of the weights", plan.weights->num_samples,
          [table](auto samples) { return table->AppendSamples(samples); });
    }
  }
  if (plan.groups.has_value()) {
    auto table = std::make_shared<GroupTable>(*plan.groups);
    arrays.Add<int32_t>(
        "classes", plan.groups->num_samples,
        [table](auto classes) { return table->Append(classes); });
    arrays.OnRead([table] { return table->Finish(); });
    sampler.groups = std::move(table);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<FeedMaker>> FeedMaker::Create(
    std::vector<ExportKind> allowed_exports, DeviceTable* devices,
    DatasetRegistry* datasets, FeedChannelFactory make_channel,
    Producer::FailureFunction on_failure) {
  std::unique_ptr<FeedMaker> maker(new FeedMaker(
      std::move(allowed_exports), devices, datasets, std::move(make_channel)));
  for (const ServedDevice& device : devices->devices()) {
    DATASETD_ASSIGN_OR_RETURN(
        maker->producers_[device.name()],
        Producer::Start(device.backend.get(), on_failure));
    if (device.backend->info().is_host) continue;
    DATASETD_ASSIGN_OR_RETURN(
        maker->scratch_pools_[device.name()],
        ScratchPool::Create(device.backend.get(), device.budget.get(),
                            maker->producers_[device.name()]->on_done()));
  }
  return maker;
}

FeedMaker::FeedMaker(std::vector<ExportKind> allowed_exports,
                     DeviceTable* devices, DatasetRegistry* datasets,
                     FeedChannelFactory make_channel)
    : allowed_exports_(std::move(allowed_exports)),
      devices_(devices),
      datasets_(datasets),
      make_channel_(std::move(make_channel)) {}

absl::StatusOr<std::unique_ptr<FeedRecord>> FeedMaker::Make(
    uint64_t id, const v1::OpenFeedRequest& request, const Caller& owner,
    const Visibility& visibility, FeedPlan& plan,
    std::unique_ptr<FeedChannel> channel) {
  const v1::FeedOptions& options = request.options();
  Backend& backend = *plan.feed.backend;
  DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device,
                            devices_->Find(backend.info().name));
  auto record = std::make_unique<FeedRecord>();
  record->transforms = KeptTransforms(options);
  record->info.visibility = visibility;
  record->info.device = device->name();
  record->info.owner = owner;
  v1::Feed& feed = record->info.feed;
  feed.set_feed_id(id);
  feed.set_name(options.name());
  feed.set_dataset(plan.feed.dataset->name());
  feed.set_uid(owner.uid);
  feed.set_pid(owner.pid);
  feed.set_batch_size(options.batch_size());
  feed.set_rank(options.rank());
  feed.set_world_size(WorldSize(options));
  feed.set_seed(options.seed());
  feed.set_slab_bytes(static_cast<uint64_t>(plan.slab_bytes));
  feed.set_num_slots(plan.layout.num_slots());
  const std::string what =
      channel != nullptr
          ? absl::StrCat("reading ", options.batch_size(),
                         " samples of dataset '", feed.dataset(), "'")
          : absl::StrCat("feed ", id, " of dataset '", feed.dataset(), "' (",
                         plan.num_slots, " slots of ",
                         plan.layout.slot_stride_bytes(), " bytes)");
  const MemoryBudget::Terms terms = {.is_privileged = owner.is_privileged,
                                     .is_private = visibility.is_private};
  const auto reserve = [&](MemoryKind kind, int64_t size_bytes) {
    return device->budget->Reserve(
        kind, owner.uid, static_cast<uint64_t>(size_bytes), what, terms);
  };
  const int64_t scratch_bytes =
      SaturatingAdd(plan.scratch_bytes, plan.array_bytes);
  // Check the user's limits first, so that no dataset is evicted in vain.
  for (const auto& [kind, size_bytes] :
       {std::pair(MemoryKind::kSlab, plan.slab_bytes),
        std::pair(MemoryKind::kScratch, scratch_bytes)}) {
    DATASETD_RETURN_IF_ERROR(device->budget->CheckUser(
        kind, owner.uid, static_cast<uint64_t>(size_bytes), what, terms));
  }
  const auto pool = scratch_pools_.find(device->name());
  if (!options.keeps_datasets()) {
    const int64_t wanted =
        SaturatingSum(plan.slab_bytes, scratch_bytes,
                      pool == scratch_pools_.end()
                          ? 0
                          : pool->second->MissingBytes(plan.team_bytes));
    if (wanted < std::numeric_limits<int64_t>::max()) {
      datasets_->MakeRoom(device->name(), wanted);
    }
  }
  DATASETD_ASSIGN_OR_RETURN(record->slab_reservation,
                            reserve(MemoryKind::kSlab, plan.slab_bytes));
  DATASETD_ASSIGN_OR_RETURN(record->scratch_reservation,
                            reserve(MemoryKind::kScratch, plan.scratch_bytes));
  if (plan.order.has_value()) {
    record->order = std::make_shared<ClientOrder>(*plan.order);
  }
  Reservation array_reservation;
  if (plan.array_bytes > 0) {
    DATASETD_ASSIGN_OR_RETURN(array_reservation,
                              reserve(MemoryKind::kScratch, plan.array_bytes));
  }
  record->arrays = std::make_shared<OrderArrays>(std::move(array_reservation));
  AddArrays(plan, record->arrays, plan.feed.sampler);
  record->weights = plan.feed.sampler.weights;
  record->keeps_datasets = options.keeps_datasets();
  std::unique_ptr<ExportedMemory> slab;
  if (channel != nullptr) {
    DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMemory> memory,
                              backend.Allocate(feed.slab_bytes()));
    slab = std::make_unique<PrivateSlab>(std::move(memory));
  } else {
    DATASETD_ASSIGN_OR_RETURN(
        slab, AllocateSlab(backend, feed.slab_bytes(), allowed_exports_,
                           request.excluded_exports(),
                           /*has_daemons_pid=*/owner.own_pid == getpid()));
    DATASETD_ASSIGN_OR_RETURN(channel, make_channel_(feed.num_slots()));
  }
  record->producer = producers_.at(device->name()).get();
  Feed::Options feed_options = std::move(plan.feed);
  if (pool != scratch_pools_.end()) {
    DATASETD_ASSIGN_OR_RETURN(
        feed_options.scratch,
        pool->second->Take(
            plan.team_bytes, owner.uid,
            absl::StrCat("the scratch memory of op chains, first for feed ",
                         id),
            {.is_privileged = owner.is_privileged}));
  }
  feed_options.id = id;
  feed_options.uid = owner.uid;
  feed_options.order = record->order;
  DATASETD_ASSIGN_OR_RETURN(
      record->feed,
      Feed::Create(std::move(feed_options), std::move(slab), std::move(channel),
                   record->producer->on_done()));
  return record;
}

absl::StatusOr<FeedMaker::NewWeights> FeedMaker::MakeWeights(
    const FeedInfo& feed, const WeightTable& before, bool keeps_datasets) {
  DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device,
                            devices_->Find(feed.device));
  const int64_t size_bytes = WeightTable::SizeBytes(before.options());
  const std::string what =
      absl::StrCat("other weights of feed ", feed.feed.feed_id(),
                   " of dataset '", feed.feed.dataset(), "'");
  const MemoryBudget::Terms terms = {.is_privileged = feed.owner.is_privileged,
                                     .is_private = feed.visibility.is_private};
  DATASETD_RETURN_IF_ERROR(device->budget->CheckUser(
      MemoryKind::kScratch, feed.owner.uid, static_cast<uint64_t>(size_bytes),
      what, terms));
  if (!keeps_datasets) datasets_->MakeRoom(device->name(), size_bytes);
  DATASETD_ASSIGN_OR_RETURN(
      Reservation reservation,
      device->budget->Reserve(MemoryKind::kScratch, feed.owner.uid,
                              static_cast<uint64_t>(size_bytes), what, terms));
  NewWeights made;
  made.arrays = std::make_shared<OrderArrays>(std::move(reservation));
  made.table = AddWeights(WeightTable::Like(before), made.arrays);
  return made;
}

}  // namespace datasetd
