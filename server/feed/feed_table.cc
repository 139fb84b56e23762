#include "server/feed/feed_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "server/feed/feed.h"
#include "server/feed/feed_explanation.h"
#include "server/feed/feed_fields.h"
#include "server/feed/feed_options.h"
#include "server/feed/feed_plan.h"

namespace datasetd {
namespace {

std::string TooMany(const UserPlaces::Usage& feeds) {
  if (feeds.total >= feeds.max_total) {
    return absl::StrCat(
        "there are ", feeds.max_total,
        " feeds already, which is 'max_feeds' of the configuration");
  }
  return absl::StrCat("uid ", feeds.uid, " has ", feeds.own,
                      " feeds already, which is 'user_limits.max_feeds' of the "
                      "configuration; close one");
}

}  // namespace

absl::StatusOr<std::unique_ptr<FeedTable>> FeedTable::Create(
    Options options, DeviceTable* devices, DatasetRegistry* datasets,
    FeedChannelFactory make_channel, const Clock* clock, Observer observer,
    Producer::FailureFunction on_failure) {
  DATASETD_ASSIGN_OR_RETURN(
      std::unique_ptr<FeedMaker> maker,
      FeedMaker::Create(options.allowed_exports, devices, datasets,
                        std::move(make_channel), std::move(on_failure)));
  return std::unique_ptr<FeedTable>(new FeedTable(std::move(options), devices,
                                                  datasets, std::move(maker),
                                                  clock, std::move(observer)));
}

FeedTable::FeedTable(Options options, DeviceTable* devices,
                     DatasetRegistry* datasets,
                     std::unique_ptr<FeedMaker> maker, const Clock* clock,
                     Observer observer)
    : options_(std::move(options)),
      devices_(devices),
      datasets_(datasets),
      clock_(clock),
      observer_(std::move(observer)),
      places_(options_.max_feeds, options_.max_feeds_per_user, TooMany),
      maker_(std::move(maker)) {}

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
  DATASETD_ASSIGN_OR_RETURN(
      const FeedDatasets datasets,
      FeedDatasets::Use(request.dataset(), request.fields(), caller,
                        datasets_));
  return ExplainFeed(request, fields, *datasets.dataset(),
                     options_.transform_limits, datasets.noise());
}

absl::Status FeedTable::Read(const v1::ReadSamplesRequest& request,
                             const Caller& caller, const ReadSink& sink) {
  DATASETD_ASSIGN_OR_RETURN(FieldOptionsMap fields,
                            CompleteFieldOptions(request.fields()));
  DATASETD_ASSIGN_OR_RETURN(
      FeedDatasets datasets,
      FeedDatasets::Use(request.dataset(), request.fields(), caller,
                        datasets_));
  DATASETD_ASSIGN_OR_RETURN(ReadPlan plan,
                            PlanRead(request, std::move(fields), datasets,
                                     options_.transform_limits));
  const auto send = [&]() -> absl::Status {
    Backend& backend = *datasets.backend();
    std::unique_ptr<FeedRecord> record;
    const uint8_t* slot = nullptr;
    if (plan.feed.has_value()) {
      DATASETD_ASSIGN_OR_RETURN(record, MakeBatch(request, plan, caller,
                                                  datasets, sink.is_cancelled));
      slot = record->slab->data();
    }
    if (!plan.has_packed()) datasets.Reset();
    return SendSamples(request, plan, caller.uid, slot, backend, datasets,
                       sink);
  };
  const absl::Status status = send();
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat("dataset '", request.dataset(),
                                          "': ", status.message(),
                                          "; unload it, and load it again"));
}

absl::StatusOr<std::unique_ptr<FeedRecord>> FeedTable::MakeBatch(
    const v1::ReadSamplesRequest& request, ReadPlan& plan, const Caller& caller,
    const FeedDatasets& datasets, const std::function<bool()>& is_cancelled) {
  uint64_t id;
  {
    MutexLock lock(&mutex_);
    id = next_id_++;
  }
  DATASETD_ASSIGN_OR_RETURN(std::unique_ptr<ReadChannel> made,
                            ReadChannel::Create());
  ReadChannel& channel = *made;
  v1::OpenFeedRequest opened;
  *opened.mutable_options() = plan.options;
  plan.feed->slab_bytes =
      static_cast<int64_t>(plan.feed->layout.slot_stride_bytes());
  DATASETD_ASSIGN_OR_RETURN(
      std::unique_ptr<FeedRecord> record,
      maker_->Make(id, opened, caller, datasets.visibility(), *plan.feed,
                   std::move(made)));
  const auto num_rows = static_cast<uint32_t>(request.indices_size());
  absl::Span<const int64_t> indices = request.indices();
  if (!plan.starts.empty()) indices = plan.starts;
  DATASETD_RETURN_IF_ERROR(
      record->order->Append({.start = {.epoch = request.epoch()},
                             .first_row = plan.first_row,
                             .batch_sizes = {&num_rows, 1},
                             .indices = indices}));
  record->producer->Add(record->feed.get());
  const bool is_made = channel.Await(is_cancelled);
  absl::Notification removed;
  record->producer->Remove(record->feed.get(), [&] { removed.Notify(); });
  removed.WaitForNotification();
  // Ends its use of the dataset, and of all memory but the slab.
  record->slab = record->feed->TakeSlab();
  record->feed.reset();
  record->order.reset();
  record->scratch_reservation.Release();
  if (is_made) return record;
  if (is_cancelled())
    return absl::CancelledError("the client gave up the call");
  DATASETD_RETURN_IF_ERROR(datasets.dataset()->status());
  DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device,
                            devices_->Find(record->info.device));
  DATASETD_RETURN_IF_ERROR(devices_->CheckServes(*device));
  return absl::InternalError(absl::StrCat(
      "dataset '", request.dataset(),
      "': the device refused to make the samples; the daemon's log has its "
      "error, of feed ",
      id));
}

absl::StatusOr<v1::OpenFeedResponse> FeedTable::Open(
    const v1::OpenFeedRequest& request, const Caller& caller) {
  const v1::FeedOptions& options = request.options();
  DATASETD_ASSIGN_OR_RETURN(const FieldOptionsMap fields,
                            CompleteFieldOptions(options.fields()));
  DATASETD_RETURN_IF_ERROR(CheckFeedOptions(options));
  DATASETD_ASSIGN_OR_RETURN(const std::vector<PartFields> part_fields,
                            CompletePartFields(options));
  DATASETD_ASSIGN_OR_RETURN(FeedDatasets datasets,
                            FeedDatasets::Use(options, caller, datasets_));
  DATASETD_ASSIGN_OR_RETURN(const ServedDevice* const planned_on,
                            devices_->Find(datasets.backend()->info().name));
  const MemoryBudget::Terms terms = {.is_privileged = caller.is_privileged};
  DATASETD_ASSIGN_OR_RETURN(
      FeedPlan plan, PlanFeed(options, fields, datasets.dataset(),
                              options_.transform_limits, datasets.backend(),
                              planned_on->budget->FreeBytesFor(
                                  MemoryKind::kSlab, caller.uid, terms),
                              /*num_slots=*/0, part_fields, datasets.noise()));
  DATASETD_ASSIGN_OR_RETURN(UserPlaces::Place place,
                            places_.Take(caller.uid, caller.is_privileged));
  uint64_t id;
  {
    MutexLock lock(&mutex_);
    id = next_id_++;
  }
  const auto num_samples = static_cast<uint64_t>(plan.num_samples);
  // Without the lock, since it may take long.
  DATASETD_ASSIGN_OR_RETURN(
      std::unique_ptr<FeedRecord> record,
      maker_->Make(id, request, caller, datasets.visibility(), plan));
  record->datasets = std::move(datasets);
  record->place = std::move(place);

  MutexLock lock(&mutex_);
  // A dataset was unloaded by force; DropPending may already have run.
  DATASETD_RETURN_IF_ERROR(record->datasets.CheckReady());
  // Likewise, and DropDevice.
  DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device,
                            devices_->Find(record->info.device));
  DATASETD_RETURN_IF_ERROR(devices_->CheckServes(*device));
  record->opened = clock_->Monotonic();
  record->deadline = record->opened + options_.attach_timeout;

  v1::OpenFeedResponse response;
  response.set_feed_id(id);
  *response.mutable_layout() = plan.layout;
  DescribeSlab(*record->feed, response.mutable_slab());
  response.set_batches_per_epoch(record->feed->batches_per_epoch());
  response.set_num_samples(num_samples);
  response.set_content_hash(record->feed->dataset().content_hash());
  response.set_transforms_hash(plan.transforms_hash);
  response.set_prefetch(static_cast<uint32_t>(plan.prefetch));
  if (plan.order.has_value()) {
    response.set_order_capacity(plan.order->capacity);
  }
  record->datasets.noise().Describe(&response);
  ++ended_[record->info.device].num_opened;
  Tell("opened", *record);
  records_[id] = std::move(record);
  return response;
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
        "the transforms of feed ", feed_id,
        " were too long to keep, or differ between the datasets of a "
        "mixture"));
  }
  return *found->second->transforms;
}

absl::StatusOr<FeedRecord*> FeedTable::FindPending(uint64_t feed_id,
                                                   uint64_t session_id) {
  const auto found = records_.find(feed_id);
  if (found == records_.end() ||
      found->second->info.owner.session_id != session_id ||
      found->second->info.phase != FeedPhase::kPending) {
    // The answer is the same if the feed belongs to another session.
    return absl::NotFoundError(absl::StrCat(
        "this session has no feed ", feed_id,
        " that waits to be attached; it may have passed attach_timeout"));
  }
  return found->second.get();
}

absl::StatusOr<std::shared_ptr<OrderArrays>> FeedTable::TakeArrays(
    uint64_t feed_id, uint64_t session_id) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(FeedRecord* const record,
                            FindPending(feed_id, session_id));
  if (record->is_reading_arrays) {
    return absl::NotFoundError(absl::StrCat(
        "feed ", feed_id, " is being attached by another connection"));
  }
  record->is_reading_arrays = true;
  return record->arrays;
}

absl::StatusOr<std::vector<int>> FeedTable::Attach(uint64_t feed_id,
                                                   uint64_t session_id) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(FeedRecord* const found,
                            FindPending(feed_id, session_id));
  FeedRecord& record = *found;
  Require(record.arrays->is_empty() || record.arrays->is_read(),
          "the feed has its arrays");
  record.info.phase = FeedPhase::kAttached;
  record.producer->Add(record.feed.get());
  const absl::Span<const int> channel = record.feed->channel().descriptors();
  std::vector<int> descriptors(channel.begin(), channel.end());
  if (record.feed->slab().file_descriptor() >= 0) {
    descriptors.push_back(record.feed->slab().file_descriptor());
  }
  Tell("attached", record);
  return descriptors;
}

absl::StatusOr<FeedRecord*> FeedTable::FindAttached(uint64_t feed_id) const {
  const auto found = records_.find(feed_id);
  if (found == records_.end() ||
      found->second->info.phase != FeedPhase::kAttached) {
    return absl::NotFoundError(
        absl::StrCat("feed ", feed_id, " has ended, or is not attached"));
  }
  return found->second.get();
}

absl::Status FeedTable::CheckWeights(
    uint64_t feed_id, absl::Span<const FileDescriptor> descriptors) const {
  OrderArrays expected{Reservation()};
  {
    MutexLock lock(&mutex_);
    DATASETD_ASSIGN_OR_RETURN(FeedRecord* const record, FindAttached(feed_id));
    if (record->weights == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          "feed ", feed_id,
          " does not draw by weights: open it with weights to change them"));
    }
    expected.Add<double>("weights", record->weights->options().num_samples,
                         nullptr);
  }
  return expected.Check(descriptors);
}

absl::Status FeedTable::SetWeights(
    uint64_t feed_id, absl::Span<const FileDescriptor> descriptors) {
  FeedInfo info;
  std::shared_ptr<const WeightTable> before;
  bool keeps_datasets;
  {
    MutexLock lock(&mutex_);
    DATASETD_ASSIGN_OR_RETURN(FeedRecord* const record, FindAttached(feed_id));
    info = record->info;
    before = record->weights;
    keeps_datasets = record->keeps_datasets;
  }
  DATASETD_ASSIGN_OR_RETURN(FeedMaker::NewWeights made,
                            maker_->MakeWeights(info, *before, keeps_datasets));
  before.reset();
  {
    MutexLock lock(&mutex_);
    DATASETD_ASSIGN_OR_RETURN(FeedRecord* const record, FindAttached(feed_id));
    Require(record->new_arrays == nullptr, "weights are set one by one");
    record->new_arrays = made.arrays;
  }
  const absl::Status status = made.arrays->Read(descriptors);
  // Shared, so that ThreadSanitizer sees who uses it last.
  const auto is_set = std::make_shared<absl::Notification>();
  {
    MutexLock lock(&mutex_);
    DATASETD_ASSIGN_OR_RETURN(FeedRecord* const record, FindAttached(feed_id));
    record->new_arrays.reset();
    if (!status.ok()) return status;
    // What was there before is freed below, without the lock.
    record->weights.swap(made.table);
    record->arrays.swap(made.arrays);
    record->producer->Run([this, feed = record->feed.get(),
                           weights = record->weights, is_set]() mutable {
      feed->SetWeights(std::move(weights), [this](auto unused) {
        reaper_.Run([unused = std::move(unused)] {});
      });
      is_set->Notify();
    });
  }
  is_set->WaitForNotification();
  return absl::OkStatus();
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

void FeedTable::EndLease(uint64_t feed_id) {
  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  if (found == records_.end()) return;
  FeedRecord& record = *found->second;
  if (record.info.phase == FeedPhase::kPending) {
    // The slab was never exported.
    record.slab_use = SlabUse::kUnused;
    BeginEnd(record);
    Free(feed_id);
  } else if (record.info.phase == FeedPhase::kAttached) {
    BeginEnd(record);
    Tell("ended", record);
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
  FeedRecord& record = *found->second;
  if (record.slab_use == SlabUse::kUsed) record.slab_use = use;
  if (record.info.phase != FeedPhase::kLingering) return;
  BeginEnd(record);
  Free(feed_id);
}

void FeedTable::Tell(const char* event, const FeedRecord& record) const {
  observer_(event, record.InfoAt(clock_->Monotonic()));
}

void FeedTable::BeginEnd(FeedRecord& record) {
  for (const auto& arrays : {record.arrays, record.new_arrays}) {
    if (arrays != nullptr) arrays->Cancel();
  }
  record.info.phase = FeedPhase::kEnding;
  ++num_ending_[record.info.owner.uid];
}

void FeedTable::Free(uint64_t feed_id) {
  reaper_.Run([this, feed_id] { FreeNow(feed_id); });
}

void FeedTable::FreeNow(uint64_t feed_id) {
  std::unique_ptr<Feed> feed;
  std::shared_ptr<ClientOrder> order;
  std::shared_ptr<OrderArrays> arrays;
  std::shared_ptr<OrderArrays> new_arrays;
  std::shared_ptr<const WeightTable> weights;
  Reservation scratch_reservation;
  FeedDatasets datasets;
  {
    MutexLock lock(&mutex_);
    FeedRecord& record = *records_.at(feed_id);
    new_arrays = std::move(record.new_arrays);
    if (record.feed != nullptr) {
      ended_[record.info.device].Add(record.InfoAt(clock_->Monotonic()));
    }
    feed = std::move(record.feed);
    order = std::move(record.order);
    arrays = std::move(record.arrays);
    weights = std::move(record.weights);
    scratch_reservation = std::move(record.scratch_reservation);
    datasets = std::move(record.datasets);
  }
  std::unique_ptr<ExportedMemory> slab;
  if (feed != nullptr) slab = feed->TakeSlab();
  feed.reset();
  order.reset();
  arrays.reset();
  new_arrays.reset();
  weights.reset();
  scratch_reservation.Release();
  datasets.Reset();

  Reservation slab_reservation;
  SlabUse slab_use;
  {
    MutexLock lock(&mutex_);
    FeedRecord& record = *records_.at(feed_id);
    if (slab == nullptr) slab = std::move(record.slab);
    slab_use = record.slab_use;
    if (slab_use == SlabUse::kUsed) {
      record.slab = std::move(slab);
      record.info.phase = FeedPhase::kLingering;
      CountEnded(record);
      Tell("lingering", record);
      return;
    }
    slab_reservation = std::move(record.slab_reservation);
  }
  ReleaseSlab(std::move(slab), slab_use);
  slab_reservation.Release();

  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  Tell("freed", *found->second);
  CountEnded(*found->second);
  records_.erase(found);
}

void FeedTable::CountEnded(const FeedRecord& record) {
  const auto count = num_ending_.find(record.info.owner.uid);
  if (--count->second == 0) num_ending_.erase(count);
}

void FeedTable::EndPending(
    const char* event, absl::FunctionRef<bool(const FeedRecord&)> predicate) {
  for (const auto& [id, record] : records_) {
    if (record->info.phase != FeedPhase::kPending) continue;
    if (!predicate(*record)) continue;
    if (event != nullptr) Tell(event, *record);
    record->slab_use = SlabUse::kUnused;
    BeginEnd(*record);
    Free(id);
  }
}

void FeedTable::EndSession(uint64_t session_id) {
  MutexLock lock(&mutex_);
  EndPending(nullptr, [session_id](const FeedRecord& record) {
    return record.info.owner.session_id == session_id;
  });
}

void FeedTable::ExpirePending() {
  const absl::Duration now = clock_->Monotonic();
  MutexLock lock(&mutex_);
  EndPending("expired", [now](const FeedRecord& record) {
    return record.deadline <= now && !record.is_reading_arrays;
  });
}

std::vector<uint64_t> FeedTable::DropPending(const Dataset* dataset) {
  MutexLock lock(&mutex_);
  return Drop([dataset](const FeedRecord& record) {
    return dataset == nullptr || record.datasets.Has(dataset);
  });
}

std::vector<uint64_t> FeedTable::DropDevice(const std::string& device) {
  MutexLock lock(&mutex_);
  return Drop([&device](const FeedRecord& record) {
    return record.info.device == device;
  });
}

std::vector<uint64_t> FeedTable::Drop(
    absl::FunctionRef<bool(const FeedRecord&)> predicate) {
  std::vector<uint64_t> attached;
  EndPending(nullptr, predicate);
  for (const auto& [id, record] : records_) {
    if (record->info.phase == FeedPhase::kAttached && predicate(*record)) {
      attached.push_back(id);
    }
  }
  return attached;
}

void FeedTable::AwaitEnded(absl::Duration timeout,
                           std::optional<uint32_t> uid) const {
  const auto have_ended = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return uid.has_value() ? num_ending_.count(*uid) == 0 : num_ending_.empty();
  };
  MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(Condition(&have_ended), timeout);
}

std::vector<FeedInfo> FeedTable::List(const Caller& caller, uint64_t after,
                                      size_t limit) const {
  MutexLock lock(&mutex_);
  const absl::Duration now = clock_->Monotonic();
  std::vector<FeedInfo> infos;
  for (auto it = records_.upper_bound(after);
       it != records_.end() && infos.size() < limit; ++it) {
    if (!it->second->info.visibility.IsSeenBy(caller)) continue;
    infos.push_back(it->second->InfoAt(now));
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
      totals[record->info.device].Add(record->InfoAt(clock_->Monotonic()));
    }
  }
  for (const auto& [name, producer] : maker_->producers()) {
    totals[name].num_throttled_wakes = producer->num_throttled_wakes();
  }
  return totals;
}

void FeedTable::PingProducers() {
  for (const auto& [name, producer] : maker_->producers()) producer->Ping();
}

std::map<std::string, ProducerProgress> FeedTable::ProducersProgress() const {
  std::map<std::string, ProducerProgress> progress;
  for (const auto& [name, producer] : maker_->producers()) {
    progress[name] = producer->progress();
  }
  return progress;
}

}  // namespace datasetd
