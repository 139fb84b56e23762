#include "server/feed/feed_table.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "proto/same_values.h"
#include "server/feed/feed.h"
#include "server/feed/feed_explanation.h"
#include "server/feed/feed_fields.h"
#include "server/feed/feed_options.h"
#include "server/feed/slab_allocation.h"

namespace datasetd {
namespace {

constexpr size_t kMaxKeptTransformsBytes = 16 * 1024;

// For FeedTable::Transforms; nullopt: too long to keep.
std::optional<std::string> KeptTransforms(const v1::FeedOptions& options) {
  v1::GetFeedTransformsResponse transforms;
  *transforms.mutable_fields() = options.fields();
  if (transforms.ByteSizeLong() > kMaxKeptTransformsBytes) return std::nullopt;
  return transforms.SerializeAsString();
}

DATASETD_SAME_VALUE(ExportKind::kMemfd, EXPORT_KIND_MEMFD);
DATASETD_SAME_VALUE(ExportKind::kCudaIpcHandle, EXPORT_KIND_CUDA_IPC_HANDLE);
DATASETD_SAME_VALUE(ExportKind::kCudaVmmFd, EXPORT_KIND_CUDA_VMM_FD);

void DescribeSlots(const SlotLayout& layout, v1::SlotLayout* to) {
  to->set_slot_stride_bytes(static_cast<uint64_t>(layout.slot_stride_bytes));
  to->set_indices_offset_bytes(
      static_cast<uint64_t>(layout.indices_offset_bytes));
  for (const SlotField& field : layout.fields) {
    v1::SlotField* const to_field = to->add_fields();
    to_field->set_name(field.name);
    to_field->set_dtype(static_cast<v1::Dtype>(field.dtype));
    to_field->mutable_shape()->Assign(field.shape.begin(), field.shape.end());
    to_field->mutable_strides()->Assign(field.strides.begin(),
                                        field.strides.end());
    to_field->set_offset_bytes(static_cast<uint64_t>(field.offset_bytes));
  }
}

void DescribeSlab(const Feed& feed, v1::SlabExport* to) {
  const ExportedMemory& slab = feed.slab();
  const DeviceInfo& device = feed.backend().info();
  to->set_kind(static_cast<v1::ExportKind>(slab.export_kind()));
  to->set_size_bytes(slab.size_bytes());
  to->set_cuda_ipc_handle(slab.ipc_handle().data(), slab.ipc_handle().size());
  to->set_device(device.name);
  if (slab.export_kind() != ExportKind::kMemfd) {
    to->set_gpu_uuid(device.uuid.data(), device.uuid.size());
    to->set_is_mig(device.is_mig);
  }
}

}  // namespace

void FeedTable::FreeMemory(std::unique_ptr<ExportedMemory> slab, SlabUse use) {
  if (use == SlabUse::kUnused) slab->Revoke();
  // Freeing memory that a process maps by such a handle is undefined behaviour;
  // the end of this process frees it.
  if (use == SlabUse::kLeft &&
      slab->export_kind() == ExportKind::kCudaIpcHandle) {
    (void)slab.release();
  }
}

struct FeedTable::Record {
  // Without what is from FeedStats and the scratch pool; see InfoOf.
  FeedInfo info;
  std::optional<std::string> transforms;  // from KeptTransforms
  // Times of the monotonic clock.
  absl::Duration opened;
  absl::Duration deadline;  // while pending
  SlabUse slab_use = SlabUse::kUsed;
  std::shared_ptr<ClientOrder> order;    // null: the daemon makes the order
  std::shared_ptr<WeightTable> weights;  // null: the order is not weighted
  // Destroyed in reverse order if opening fails: memory before its reservation,
  // and everything before the place.
  FeedQuota::Place place;
  Reservation slab_reservation;
  Reservation scratch_reservation;
  DatasetUse use;
  std::unique_ptr<ExportedMemory> slab;  // while lingering
  std::unique_ptr<Feed> feed;            // before lingering
  Producer* producer = nullptr;
};

absl::StatusOr<std::unique_ptr<FeedTable>> FeedTable::Create(
    Options options, DeviceTable* devices, DatasetRegistry* datasets,
    FeedChannelFactory make_channel, const Clock* clock, Observer observer,
    Producer::FailureFunction on_failure) {
  std::unique_ptr<FeedTable> table(
      new FeedTable(std::move(options), devices, datasets,
                    std::move(make_channel), clock, std::move(observer)));
  for (const ServedDevice& device : devices->devices()) {
    DATASETD_ASSIGN_OR_RETURN(
        table->producers_[device.name()],
        Producer::Start(device.backend.get(), on_failure));
    if (device.backend->info().is_host) continue;
    DATASETD_ASSIGN_OR_RETURN(
        table->scratch_pools_[device.name()],
        ScratchPool::Create(device.backend.get(), device.budget.get(),
                            table->producers_[device.name()]->on_done()));
  }
  return table;
}

FeedTable::FeedTable(Options options, DeviceTable* devices,
                     DatasetRegistry* datasets, FeedChannelFactory make_channel,
                     const Clock* clock, Observer observer)
    : options_(std::move(options)),
      devices_(devices),
      datasets_(datasets),
      make_channel_(std::move(make_channel)),
      clock_(clock),
      observer_(std::move(observer)),
      quota_(options_.max_feeds, options_.max_feeds_per_user) {}

FeedTable::~FeedTable() {
  std::vector<uint64_t> ids;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, record] : records_) ids.push_back(id);
  }
  for (const uint64_t id : ids) {
    EndLease(id);
    GiveUpSlab(id, SlabUse::kLeft);
  }
  const auto is_empty = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return records_.empty();
  };
  MutexLock lock(&mutex_, Condition(&is_empty));
}

absl::StatusOr<v1::ExplainTransformsResponse> FeedTable::Explain(
    const v1::ExplainTransformsRequest& request, const Caller& caller) {
  DATASETD_ASSIGN_OR_RETURN(const FieldOptionsMap fields,
                            CompleteFieldOptions(request.fields()));
  DATASETD_ASSIGN_OR_RETURN(const DatasetUse use,
                            datasets_->Use(request.dataset(), caller));
  return ExplainFeed(request, fields, *use.dataset(),
                     options_.transform_limits);
}

absl::StatusOr<v1::OpenFeedResponse> FeedTable::Open(
    const v1::OpenFeedRequest& request, const Caller& caller) {
  const v1::FeedOptions& options = request.options();
  DATASETD_ASSIGN_OR_RETURN(const FieldOptionsMap fields,
                            CompleteFieldOptions(options.fields()));
  DATASETD_RETURN_IF_ERROR(CheckFeedOptions(options));
  DATASETD_ASSIGN_OR_RETURN(
      DatasetUse use,
      datasets_->Use(options.dataset(), caller, options.device()));
  DATASETD_ASSIGN_OR_RETURN(FeedPlan plan,
                            PlanFeed(options, fields, use.dataset(),
                                     options_.transform_limits, use.backend()));
  DATASETD_ASSIGN_OR_RETURN(FeedQuota::Place place,
                            quota_.Take(caller.uid, caller.is_privileged));
  uint64_t id;
  {
    MutexLock lock(&mutex_);
    id = next_id_++;
  }
  const auto num_samples = static_cast<uint64_t>(plan.feed.sampler.num_samples);
  // Runs without the lock: memory is zeroed and tables are made.
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<Record> record,
                            MakeRecord(id, request, caller, use, plan));
  record->use = std::move(use);
  record->place = std::move(place);

  MutexLock lock(&mutex_);
  if (!record->use.IsReady()) {
    // The dataset was unloaded by force; DropPending may already have run.
    return absl::FailedPreconditionError(
        absl::StrCat("dataset '", options.dataset(), "' is being unloaded"));
  }
  // Likewise, and DropDevice.
  DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device,
                            devices_->Find(record->info.device));
  DATASETD_RETURN_IF_ERROR(devices_->CheckServes(*device));
  record->opened = clock_->Monotonic();
  record->deadline = record->opened + options_.attach_timeout;

  v1::OpenFeedResponse response;
  response.set_feed_id(id);
  v1::SlotLayout* const layout = response.mutable_layout();
  layout->set_num_slots(record->info.feed.num_slots());
  DescribeSlots(plan.layout, layout);
  DescribeSlab(*record->feed, response.mutable_slab());
  response.set_batches_per_epoch(record->feed->batches_per_epoch());
  response.set_num_samples(num_samples);
  response.set_content_hash(record->feed->dataset().content_hash());
  response.set_transforms_hash(plan.transforms_hash);
  response.set_prefetch(static_cast<uint32_t>(plan.prefetch));
  if (plan.order.has_value()) {
    response.set_order_capacity(plan.order->capacity);
  }
  ++ended_[record->info.device].num_opened;
  observer_("opened", InfoOf(*record));
  records_[id] = std::move(record);
  return response;
}

absl::StatusOr<std::unique_ptr<FeedTable::Record>> FeedTable::MakeRecord(
    uint64_t id, const v1::OpenFeedRequest& request, const Caller& owner,
    const DatasetUse& use, FeedPlan& plan) {
  const v1::FeedOptions& options = request.options();
  Backend& backend = *plan.feed.backend;
  DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device,
                            devices_->Find(backend.info().name));
  auto record = std::make_unique<Record>();
  record->transforms = KeptTransforms(options);
  record->info.visibility = use.visibility();
  record->info.device = device->name();
  record->info.owner = owner;
  v1::Feed& feed = record->info.feed;
  feed.set_feed_id(id);
  feed.set_name(options.name());
  feed.set_dataset(options.dataset());
  feed.set_uid(owner.uid);
  feed.set_pid(owner.pid);
  feed.set_batch_size(options.batch_size());
  feed.set_rank(options.rank());
  feed.set_world_size(WorldSize(options));
  feed.set_seed(options.seed());
  feed.set_slab_bytes(static_cast<uint64_t>(plan.slab_bytes));
  feed.set_num_slots(static_cast<uint32_t>(plan.num_slots));
  const std::string what = absl::StrCat(
      "feed ", id, " of dataset '", options.dataset(), "' (", plan.num_slots,
      " slots of ", plan.layout.slot_stride_bytes, " bytes)");
  const MemoryBudget::Terms terms = {.is_privileged = owner.is_privileged,
                                     .is_private = use.visibility().is_private};
  const auto reserve = [&](MemoryKind kind, int64_t size_bytes) {
    return device->budget->Reserve(
        kind, owner.uid, static_cast<uint64_t>(size_bytes), what, terms);
  };
  // Check the user's limit first, so that no dataset is evicted in vain.
  DATASETD_RETURN_IF_ERROR(device->budget->CheckUser(
      MemoryKind::kSlab, owner.uid, feed.slab_bytes(), what, terms));
  const auto pool = scratch_pools_.find(device->name());
  if (!options.keeps_datasets()) {
    const int64_t wanted =
        SaturatingSum(plan.slab_bytes, plan.scratch_bytes,
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
  if (plan.weights.has_value()) {
    record->weights = std::make_shared<WeightTable>(*plan.weights);
  }
  DATASETD_ASSIGN_OR_RETURN(
      std::unique_ptr<ExportedMemory> slab,
      AllocateSlab(backend, feed.slab_bytes(), options_.allowed_exports,
                   request.excluded_exports(),
                   /*has_daemons_pid=*/owner.own_pid == getpid()));
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<FeedChannel> channel,
                            make_channel_(feed.num_slots()));
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
  feed_options.sampler.weights = record->weights;
  DATASETD_ASSIGN_OR_RETURN(
      record->feed,
      Feed::Create(std::move(feed_options), std::move(slab), std::move(channel),
                   record->producer->on_done()));
  return record;
}

absl::StatusOr<std::string> FeedTable::Transforms(uint64_t feed_id,
                                                  const Caller& caller) const {
  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  if (found == records_.end() ||
      !found->second->info.visibility.IsSeenBy(caller) ||
      (!caller.is_privileged && found->second->info.owner.uid != caller.uid)) {
    return absl::NotFoundError(absl::StrCat("this user has no feed ", feed_id));
  }
  if (!found->second->transforms.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the transforms of feed ", feed_id, " were too long to keep"));
  }
  return *found->second->transforms;
}

absl::StatusOr<std::vector<int>> FeedTable::Attach(uint64_t feed_id,
                                                   uint64_t session_id) {
  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  if (found == records_.end() ||
      found->second->info.owner.session_id != session_id ||
      found->second->info.phase != FeedPhase::kPending) {
    // The answer is the same if the feed belongs to another session.
    return absl::NotFoundError(absl::StrCat(
        "this session has no feed ", feed_id,
        " that waits to be attached; it may have passed attach_timeout"));
  }
  Record& record = *found->second;
  if (record.weights != nullptr && !record.weights->is_complete()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "feed ", feed_id,
        " has not got all of its weights; send them by SendWeights first"));
  }
  record.info.phase = FeedPhase::kAttached;
  record.producer->Add(record.feed.get());
  const absl::Span<const int> channel = record.feed->channel().descriptors();
  std::vector<int> descriptors(channel.begin(), channel.end());
  if (record.feed->slab().file_descriptor() >= 0) {
    descriptors.push_back(record.feed->slab().file_descriptor());
  }
  observer_("attached", InfoOf(record));
  return descriptors;
}

absl::Status FeedTable::SendIndices(uint64_t feed_id, uint64_t session_id,
                                    const ClientOrder::Block& block) {
  std::shared_ptr<ClientOrder> order;
  Producer* producer;
  {
    MutexLock lock(&mutex_);
    const auto found = records_.find(feed_id);
    if (found == records_.end() ||
        found->second->info.owner.session_id != session_id ||
        (found->second->info.phase != FeedPhase::kPending &&
         found->second->info.phase != FeedPhase::kAttached)) {
      return absl::NotFoundError(
          absl::StrCat("this session has no open feed ", feed_id));
    }
    order = found->second->order;
    producer = found->second->producer;
  }
  if (order == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "feed ", feed_id,
        " has the daemon's order; open it with client_order to send one"));
  }
  const absl::Status status = order->Append(block);
  producer->Wake();
  return status;
}

absl::Status FeedTable::SendWeights(uint64_t feed_id, uint64_t session_id,
                                    const WeightTable::Block& block) {
  const auto predicate = [=](const Record& record) {
    return record.info.feed.feed_id() == feed_id &&
           record.info.owner.session_id == session_id &&
           record.info.phase == FeedPhase::kPending;
  };
  std::shared_ptr<WeightTable> weights;
  {
    MutexLock lock(&mutex_);
    const auto found = records_.find(feed_id);
    if (found == records_.end() || !predicate(*found->second)) {
      return absl::NotFoundError(absl::StrCat(
          "this session has no feed ", feed_id,
          " that waits to be attached; it may have passed attach_timeout"));
    }
    weights = found->second->weights;
  }
  if (weights == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("feed ", feed_id,
                     " has no weights; open it with weighted_order to send "
                     "them"));
  }
  const absl::Status status = weights->Append(block);
  weights.reset();  // before EndPending, which returns its memory
  MutexLock lock(&mutex_);
  if (!status.ok()) {
    EndPending(nullptr, predicate);
  } else if (const auto found = records_.find(feed_id);
             found != records_.end()) {
    found->second->deadline = clock_->Monotonic() + options_.attach_timeout;
  }
  return status;
}

void FeedTable::EndLease(uint64_t feed_id) {
  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  if (found == records_.end()) return;
  Record& record = *found->second;
  if (record.info.phase == FeedPhase::kPending) {
    // The slab was never exported.
    record.slab_use = SlabUse::kUnused;
    BeginEnd(record);
    Free(feed_id);
  } else if (record.info.phase == FeedPhase::kAttached) {
    BeginEnd(record);
    observer_("ended", InfoOf(record));
    record.producer->Remove(record.feed.get(),
                            [this, feed_id] { Free(feed_id); });
  }
}

void FeedTable::FreeSlab(uint64_t feed_id) {
  GiveUpSlab(feed_id, SlabUse::kUnused);
}

void FeedTable::GiveUpSlab(uint64_t feed_id, SlabUse use) {
  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  if (found == records_.end()) return;
  Record& record = *found->second;
  if (record.slab_use == SlabUse::kUsed) record.slab_use = use;
  if (record.info.phase != FeedPhase::kLingering) return;
  BeginEnd(record);
  Free(feed_id);
}

void FeedTable::BeginEnd(Record& record) {
  record.info.phase = FeedPhase::kEnding;
  ++num_ending_;
}

void FeedTable::Free(uint64_t feed_id) {
  reaper_.Run([this, feed_id] { FreeNow(feed_id); });
}

void FeedTable::FreeNow(uint64_t feed_id) {
  std::unique_ptr<Feed> feed;
  std::shared_ptr<ClientOrder> order;
  std::shared_ptr<WeightTable> weights;
  Reservation scratch_reservation;
  DatasetUse use;
  {
    MutexLock lock(&mutex_);
    Record& record = *records_.at(feed_id);
    if (record.feed != nullptr) ended_[record.info.device].Add(InfoOf(record));
    feed = std::move(record.feed);
    order = std::move(record.order);
    weights = std::move(record.weights);
    scratch_reservation = std::move(record.scratch_reservation);
    use = std::move(record.use);
  }
  std::unique_ptr<ExportedMemory> slab;
  if (feed != nullptr) slab = feed->TakeSlab();
  feed.reset();
  order.reset();
  weights.reset();
  scratch_reservation.Release();
  use.Reset();

  Reservation slab_reservation;
  SlabUse slab_use;
  {
    MutexLock lock(&mutex_);
    Record& record = *records_.at(feed_id);
    if (slab == nullptr) slab = std::move(record.slab);
    slab_use = record.slab_use;
    if (slab_use == SlabUse::kUsed) {
      record.slab = std::move(slab);
      record.info.phase = FeedPhase::kLingering;
      --num_ending_;
      observer_("lingering", InfoOf(record));
      return;
    }
    slab_reservation = std::move(record.slab_reservation);
  }
  FreeMemory(std::move(slab), slab_use);
  slab_reservation.Release();

  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  observer_("freed", InfoOf(*found->second));
  records_.erase(found);
  --num_ending_;
}

void FeedTable::EndPending(const char* event,
                           absl::FunctionRef<bool(const Record&)> predicate) {
  for (const auto& [id, record] : records_) {
    if (record->info.phase != FeedPhase::kPending) continue;
    if (!predicate(*record)) continue;
    if (event != nullptr) observer_(event, InfoOf(*record));
    record->slab_use = SlabUse::kUnused;
    BeginEnd(*record);
    Free(id);
  }
}

void FeedTable::EndSession(uint64_t session_id) {
  MutexLock lock(&mutex_);
  EndPending(nullptr, [session_id](const Record& record) {
    return record.info.owner.session_id == session_id;
  });
}

void FeedTable::ExpirePending() {
  const absl::Duration now = clock_->Monotonic();
  MutexLock lock(&mutex_);
  EndPending("expired",
             [now](const Record& record) { return record.deadline <= now; });
}

std::vector<uint64_t> FeedTable::DropPending(const Dataset* dataset) {
  MutexLock lock(&mutex_);
  return Drop([dataset](const Record& record) {
    return dataset == nullptr || record.use.dataset().get() == dataset;
  });
}

std::vector<uint64_t> FeedTable::DropDevice(const std::string& device) {
  MutexLock lock(&mutex_);
  return Drop(
      [&device](const Record& record) { return record.info.device == device; });
}

std::vector<uint64_t> FeedTable::Drop(
    absl::FunctionRef<bool(const Record&)> predicate) {
  std::vector<uint64_t> attached;
  EndPending(nullptr, predicate);
  for (const auto& [id, record] : records_) {
    if (record->info.phase == FeedPhase::kAttached && predicate(*record)) {
      attached.push_back(id);
    }
  }
  return attached;
}

void FeedTable::AwaitEnded(absl::Duration timeout) const {
  const auto have_ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_ending_ == 0;
  };
  MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(Condition(&have_ended), timeout);
}

FeedInfo FeedTable::InfoOf(const Record& record) const {
  FeedInfo info = record.info;
  v1::Feed& feed = info.feed;
  feed.set_is_attached(info.phase == FeedPhase::kAttached);
  if (record.feed == nullptr) return info;
  constexpr auto kRelaxed = std::memory_order_relaxed;
  info.num_teams = record.feed->scratch().num_teams();
  info.max_teams = record.feed->scratch().max_teams();
  const FeedStats& stats = record.feed->stats();
  feed.mutable_position()->set_epoch(stats.next_epoch.load(kRelaxed));
  feed.mutable_position()->set_batch(stats.next_batch.load(kRelaxed));
  feed.set_num_batches(stats.num_batches.load(kRelaxed));
  feed.set_num_samples(stats.num_samples.load(kRelaxed));
  feed.set_num_slots_held(stats.num_slots_held.load(kRelaxed));
  feed.set_num_ignored_releases(stats.num_ignored_releases.load(kRelaxed));
  feed.set_num_ignored_seeks(stats.num_ignored_seeks.load(kRelaxed));
  feed.set_num_launches(stats.num_launches.load(kRelaxed));
  // As the client says, and at most the feed's age.
  feed.set_client_wait_seconds(std::min(
      1e-9 * static_cast<double>(stats.client_wait_nanoseconds.load(kRelaxed)),
      absl::ToDoubleSeconds(clock_->Monotonic() - record.opened)));
  feed.set_daemon_wait_seconds(
      1e-9 * static_cast<double>(stats.daemon_wait_nanoseconds.load(kRelaxed)));
  info.hand_over = stats.hand_over.Read();
  return info;
}

std::vector<FeedInfo> FeedTable::List(const Caller& caller, uint64_t after,
                                      size_t limit) const {
  MutexLock lock(&mutex_);
  std::vector<FeedInfo> infos;
  for (auto it = records_.upper_bound(after);
       it != records_.end() && infos.size() < limit; ++it) {
    if (!it->second->info.visibility.IsSeenBy(caller)) continue;
    infos.push_back(InfoOf(*it->second));
  }
  return infos;
}

size_t FeedTable::num_feeds() const {
  MutexLock lock(&mutex_);
  return records_.size();
}

std::map<std::string, FeedTotals> FeedTable::Totals() const {
  std::map<std::string, FeedTotals> totals;
  {
    MutexLock lock(&mutex_);
    totals = ended_;
    for (const auto& [id, record] : records_) {
      totals[record->info.device].Add(InfoOf(*record));
    }
  }
  for (const auto& [name, producer] : producers_) {
    totals[name].num_throttled_wakes = producer->num_throttled_wakes();
  }
  return totals;
}

void FeedTable::PingProducers() {
  for (const auto& [name, producer] : producers_) producer->Ping();
}

std::map<std::string, ProducerProgress> FeedTable::ProducersProgress() const {
  std::map<std::string, ProducerProgress> progress;
  for (const auto& [name, producer] : producers_) {
    progress[name] = producer->progress();
  }
  return progress;
}

}  // namespace datasetd
