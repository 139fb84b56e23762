#include "server/core/feed_table.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cuda/kernels/chain_scratch.h"
#include "cuda/status_macros.h"
#include "server/core/mix_labels.h"
#include "server/core/subset.h"
#include "server/core/transform_spec.h"
#include "server/core/transforms_hash.h"

namespace datasetd {
namespace {

constexpr int64_t kMaxNameLength = 128;
constexpr int64_t kMaxPrefetch = 62;
constexpr int64_t kDefaultPrefetchBytes = 64 << 20;
constexpr int64_t kMinDefaultPrefetch = 4;
constexpr int64_t kMaxDefaultPrefetch = 32;
// Slots beyond the prefetched ones: one in use, one on its way back.
constexpr int64_t kExtraSlots = 2;
constexpr int64_t kSlabGranularityBytes = 2 << 20;
// Of one Explain: they fit in one message.
constexpr size_t kMaxExplainedOps = 20'000;
// Of a client's order, beyond two for every slot: batches, of so many rows
// together at most.
constexpr int64_t kMaxExtraBatches = 64;
constexpr int64_t kExtraRows = 65536;

absl::Status CheckOptions(const FeedOptions& options) {
  if (options.prefetch < 0 || options.prefetch > kMaxPrefetch) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prefetch: ", options.prefetch, " is out of range; 1 to ",
        kMaxPrefetch, ", or unset to let the daemon choose"));
  }
  if (static_cast<int64_t>(options.name.size()) > kMaxNameLength) {
    return absl::InvalidArgumentError(
        absl::StrCat("name: longer than ", kMaxNameLength, " characters"));
  }
  if (!options.has_client_order) return absl::OkStatus();
  if (options.shuffle || options.drop_last || options.subset.has_value()) {
    return absl::InvalidArgumentError(
        "client_order: the client makes the order, so that shuffle, drop_last "
        "and subset must not be set");
  }
  if (options.batch_size < 1 ||
      options.batch_size > ClientOrder::kMaxBatchSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size is ", options.batch_size,
        "; with client_order it must be within 1..",
        ClientOrder::kMaxBatchSize));
  }
  if (options.world_size < 1 || options.rank < 0 ||
      options.rank >= options.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", options.rank, ", world_size ",
                     options.world_size, "; rank must be within 0..",
                     "world_size - 1"));
  }
  return absl::OkStatus();
}

size_t CountOps(const std::vector<TransformSpec>& transforms) {
  size_t count = transforms.size();
  for (const TransformSpec& transform : transforms) {
    if (const auto* group = std::get_if<RandomApplySpec>(&transform.op)) {
      count += CountOps(group->transforms);
    }
  }
  return count;
}

}  // namespace

struct FeedTable::Record {
  uint64_t id = 0;
  FeedOptions options;
  std::string device;
  Caller owner;
  FeedPhase phase = FeedPhase::kPending;
  // Monotonic.
  absl::Duration opened;
  absl::Duration deadline;  // while pending
  uint64_t slab_bytes = 0;
  uint32_t num_slots = 0;
  bool is_slab_unused = false;  // the client is done with it
  std::shared_ptr<ClientOrder> order;  // null: the daemon's
  // Destroyed from below: memory goes before its reservation.
  Reservation slab_reservation;
  Reservation scratch_reservation;
  DatasetUse use;
  std::unique_ptr<ExportedMemory> slab;  // when lingering
  std::unique_ptr<Feed> feed;            // before that
  Producer* producer = nullptr;
};

absl::StatusOr<std::unique_ptr<FeedTable>> FeedTable::Create(
    Options options, DeviceTable* devices, DatasetRegistry* datasets,
    FeedChannelFactory make_channel, const Clock* clock, Observer observer,
    std::function<void(absl::Status)> on_device_failure) {
  std::unique_ptr<FeedTable> table(
      new FeedTable(std::move(options), devices, datasets,
                    std::move(make_channel), clock, std::move(observer)));
  for (const ServedDevice& device : devices->devices()) {
    DATASETD_ASSIGN_OR_RETURN(
        table->producers_[device.name()],
        Producer::Start(device.backend.get(), on_device_failure));
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
      observer_(std::move(observer)) {}

FeedTable::~FeedTable() {
  std::vector<uint64_t> ids;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, record] : records_) ids.push_back(id);
  }
  for (const uint64_t id : ids) {
    EndLease(id);
    FreeSlab(id);
  }
  const auto is_empty = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return records_.empty();
  };
  MutexLock lock(&mutex_, Condition(&is_empty));
}

absl::StatusOr<std::unique_ptr<ExportedMemory>> FeedTable::AllocateSlab(
    Backend& backend, size_t size_bytes,
    const std::vector<ExportKind>& excluded) {
  std::string tried;
  for (const ExportKind kind : backend.export_kinds()) {
    const std::vector<ExportKind>& allowed = options_.allowed_exports;
    const bool is_allowed =
        backend.info().is_host || allowed.empty() ||
        std::find(allowed.begin(), allowed.end(), kind) != allowed.end();
    const bool is_excluded = std::find(excluded.begin(), excluded.end(),
                                       kind) != excluded.end();
    absl::StrAppend(&tried, tried.empty() ? "" : ", ", ExportKindName(kind),
                    !is_allowed    ? " (not allowed by 'slab_export')"
                    : is_excluded ? " (failed in the client)"
                                  : "");
    if (!is_allowed || is_excluded) continue;
    auto slab = backend.AllocateExported(size_bytes, kind);
    if (!absl::IsUnimplemented(slab.status())) return slab;
    absl::StrAppend(&tried, " (", slab.status().message(), ")");
  }
  return absl::UnimplementedError(absl::StrCat(
      "no way is left to share memory of ", backend.info().name,
      " with this client: ", tried,
      "; run `datasetctl doctor`, and see 'Containers' in the README"));
}

absl::StatusOr<Explanation> FeedTable::Explain(
    const FeedOptions& options, uint64_t epoch,
    absl::Span<const uint64_t> indices, const Caller& caller) {
  DATASETD_ASSIGN_OR_RETURN(DatasetUse use,
                            datasets_->Use(options.dataset, caller));
  const Dataset& dataset = *use.dataset();
  size_t num_ops = 1;
  for (const auto& [name, field] : options.fields) {
    num_ops += CountOps(field.transforms);
  }
  if (indices.size() > kMaxExplainedOps / num_ops) {
    return absl::InvalidArgumentError(absl::StrCat(
        "indices: ", indices.size(), " samples of ", num_ops,
        " ops are more than ", kMaxExplainedOps, "; ask for at most ",
        kMaxExplainedOps / num_ops, " samples at a time"));
  }
  const auto num_samples = static_cast<uint64_t>(dataset.num_samples());
  for (const uint64_t index : indices) {
    if (index < num_samples) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "indices: ", index, " is out of range; dataset '", options.dataset,
        "' has ", num_samples, " samples, from 0"));
  }
  DATASETD_ASSIGN_OR_RETURN(
      const FeedFields fields,
      CompileFeedFields(dataset, options.field_names, options.fields,
                        /*skips_packed=*/true));
  const std::vector<FieldProgram>& programs = fields.programs;
  const auto program = std::make_unique<AugmentProgram>();
  program->seed = options.seed;
  program->num_fields = static_cast<int32_t>(programs.size());
  std::copy(programs.begin(), programs.end(), program->fields);
  Explanation explanation;
  for (const FieldSpec& field : fields.specs) {
    explanation.fields.push_back(field.name);
  }
  for (const uint64_t index : indices) {
    Explanation::Sample& sample = explanation.samples.emplace_back();
    sample.index = static_cast<int64_t>(index);
    for (size_t f = 0; f < programs.size(); ++f) {
      const RaggedIndex* const ragged = dataset.field_index(fields.sources[f]);
      if (ragged == nullptr) continue;
      GiveSize(programs[f], ragged->size(sample.index), &program->fields[f]);
    }
    DATASETD_ASSIGN_OR_RETURN(
        sample.ops, ExplainSample(*program, epoch, sample.index));
  }
  return explanation;
}

absl::StatusOr<OpenedFeed> FeedTable::Open(const FeedOptions& options,
                                           const Caller& caller) {
  DATASETD_RETURN_IF_ERROR(CheckOptions(options));
  DATASETD_ASSIGN_OR_RETURN(DatasetUse use, datasets_->Use(options.dataset, caller));
  const Dataset& dataset = *use.dataset();
  Backend& backend = dataset.backend();
  if (!options.device.empty() && options.device != backend.info().name) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device: the feed asks for ", options.device, ", but dataset '",
        options.dataset, "' is on ", backend.info().name,
        "; load it on that device under another name"));
  }
  DATASETD_ASSIGN_OR_RETURN(ServedDevice* const device,
                            devices_->Find(backend.info().name));
  DATASETD_ASSIGN_OR_RETURN(
      FeedFields fields,
      CompileFeedFields(dataset, options.field_names, options.fields,
                        /*skips_packed=*/false));
  std::vector<FieldProgram>& programs = fields.programs;
  DATASETD_RETURN_IF_ERROR(
      CheckMixedLabels(dataset, fields.sources, programs));
  DATASETD_ASSIGN_OR_RETURN(
      SlotLayout layout,
      ComputeSlotLayout(fields.specs, absl::MakeSpan(programs),
                        options.batch_size));

  const int64_t stride = layout.slot_stride_bytes;
  const int64_t prefetch =
      options.prefetch != 0
          ? options.prefetch
          : std::clamp(kDefaultPrefetchBytes / stride, kMinDefaultPrefetch,
                       kMaxDefaultPrefetch);
  const int64_t num_slots = prefetch + kExtraSlots;
  // ComputeSlotLayout keeps this far from overflowing.
  const int64_t slab_bytes = (num_slots * stride + kSlabGranularityBytes - 1) /
                             kSlabGranularityBytes * kSlabGranularityBytes;

  Feed::Options feed_options;
  feed_options.dataset = use.dataset();
  feed_options.program.seed = options.seed;
  feed_options.program.indices_offset_bytes = layout.indices_offset_bytes;
  feed_options.program.num_fields = static_cast<int32_t>(programs.size());
  std::copy(programs.begin(), programs.end(), feed_options.program.fields);
  feed_options.sampler.num_samples = dataset.num_samples();
  if (options.subset.has_value()) {
    DATASETD_ASSIGN_OR_RETURN(
        feed_options.sampler.subset,
        MakeSubset(*options.subset, dataset.num_samples(), dataset.name()));
    feed_options.sampler.num_samples =
        static_cast<int64_t>(options.subset->size());
  }
  feed_options.sampler.batch_size = options.batch_size;
  feed_options.sampler.shuffle = options.shuffle;
  feed_options.sampler.drop_last = options.drop_last;
  feed_options.sampler.seed = options.seed;
  feed_options.sampler.rank = options.rank;
  feed_options.sampler.world_size = options.world_size;
  feed_options.num_slots = static_cast<uint32_t>(num_slots);
  feed_options.slot_stride_bytes = static_cast<uint64_t>(stride);
  feed_options.start = options.start;
  feed_options.draws_by_sample = options.draws_by_sample;

  int64_t scratch_bytes =
      num_slots * options.batch_size * static_cast<int64_t>(sizeof(int64_t)) +
      static_cast<int64_t>(sizeof(AugmentProgram)) +
      PlanScratch(feed_options.program, backend.max_teams()).size_bytes;
  if (options.subset.has_value()) {
    scratch_bytes += feed_options.sampler.num_samples *
                     static_cast<int64_t>(sizeof(uint32_t));
  }
  ClientOrder::Options order_options;
  if (options.has_client_order) {
    order_options.num_samples = dataset.num_samples();
    order_options.batch_size = options.batch_size;
    order_options.rank = options.rank;
    order_options.world_size = options.world_size;
    order_options.start = options.start;
    order_options.capacity = static_cast<uint32_t>(
        2 * num_slots + std::clamp<int64_t>(kExtraRows / options.batch_size,
                                            1, kMaxExtraBatches));
    scratch_bytes += ClientOrder::SizeBytes(order_options);
  }

  uint64_t id;
  {
    MutexLock lock(&mutex_);
    DATASETD_RETURN_IF_ERROR(CheckLimits(caller.uid));
    ++num_opening_[caller.uid];
    id = next_id_++;
  }
  feed_options.id = id;

  // Nothing below is locked: memory is zeroed, tables are made.
  auto make_record = [&]() -> absl::StatusOr<std::unique_ptr<Record>> {
    auto record = std::make_unique<Record>();
    record->id = id;
    record->options = options;
    record->options.subset.reset();
    record->device = device->name();
    record->owner = caller;
    record->slab_bytes = slab_bytes;
    record->num_slots = static_cast<uint32_t>(num_slots);
    const std::string what =
        absl::StrCat("feed ", id, " of dataset '", options.dataset, "' (",
                     num_slots, " slots of ", stride, " bytes)");
    const auto reserve = [&](MemoryKind kind, uint64_t size_bytes) {
      if (device->budget->free_bytes() < size_bytes) {
        datasets_->MakeRoom(device->name(), static_cast<int64_t>(size_bytes));
      }
      return device->budget->Reserve(kind, caller.uid, size_bytes, what);
    };
    DATASETD_ASSIGN_OR_RETURN(record->slab_reservation,
                              reserve(MemoryKind::kSlab, slab_bytes));
    DATASETD_ASSIGN_OR_RETURN(
        record->scratch_reservation,
        reserve(MemoryKind::kScratch, static_cast<uint64_t>(scratch_bytes)));
    if (options.has_client_order) {
      record->order = std::make_shared<ClientOrder>(order_options);
      feed_options.order = record->order;
    }
    DATASETD_ASSIGN_OR_RETURN(
        std::unique_ptr<ExportedMemory> slab,
        AllocateSlab(backend, slab_bytes, options.excluded_exports));
    DATASETD_ASSIGN_OR_RETURN(
        std::unique_ptr<FeedChannel> channel,
        make_channel_(static_cast<uint32_t>(num_slots)));
    record->producer = producers_.at(device->name()).get();
    feed_options.hand_over = record->producer->hand_over();
    DATASETD_ASSIGN_OR_RETURN(
        record->feed,
        Feed::Create(feed_options, std::move(slab), std::move(channel),
                     record->producer->on_done()));
    record->use = std::move(use);
    return record;
  };
  auto record = make_record();

  MutexLock lock(&mutex_);
  if (--num_opening_[caller.uid] == 0) num_opening_.erase(caller.uid);
  if (!record.ok()) return record.status();
  if (!(*record)->use.IsReady()) {
    // Unloaded by force meanwhile: DropPending may have passed already.
    return absl::FailedPreconditionError(absl::StrCat(
        "dataset '", options.dataset, "' is being unloaded"));
  }
  Record& made = **record;
  made.opened = clock_->Monotonic();
  made.deadline = made.opened + options_.attach_timeout;

  OpenedFeed opened;
  opened.id = id;
  opened.layout = std::move(layout);
  opened.num_slots = made.num_slots;
  opened.prefetch = static_cast<uint32_t>(prefetch);
  const ExportedMemory& slab = made.feed->slab();
  opened.slab_bytes = slab.size_bytes();
  opened.export_kind = slab.export_kind();
  opened.ipc_handle.assign(slab.ipc_handle().begin(), slab.ipc_handle().end());
  opened.device = device->name();
  opened.uuid = backend.info().uuid;
  opened.batches_per_epoch = made.feed->batches_per_epoch();
  opened.num_samples = feed_options.sampler.num_samples;
  opened.order_capacity = order_options.capacity;
  opened.content_hash = dataset.content_hash();
  opened.transforms_hash = TransformsHash(fields.pipelines);
  ++ended_[made.device].num_opened;
  observer_("opened", InfoOf(made));
  records_[id] = *std::move(record);
  return opened;
}

absl::Status FeedTable::CheckLimits(uint32_t uid) const {
  size_t total = records_.size();
  size_t of_user = 0;
  for (const auto& [opening_uid, count] : num_opening_) {
    total += count;
    if (opening_uid == uid) of_user += count;
  }
  for (const auto& [id, record] : records_) {
    if (record->owner.uid == uid) ++of_user;
  }
  if (total >= options_.max_feeds) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "there are ", options_.max_feeds,
        " feeds already, which is 'max_feeds' of the configuration"));
  }
  if (options_.max_feeds_per_user != 0 &&
      of_user >= options_.max_feeds_per_user) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "uid ", uid, " has ", of_user,
        " feeds already, which is 'user_limits.max_feeds' of the "
        "configuration; close one"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> FeedTable::Attach(uint64_t feed_id,
                                                   uint64_t session_id) {
  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  if (found == records_.end() ||
      found->second->owner.session_id != session_id ||
      found->second->phase != FeedPhase::kPending) {
    // One answer for all: another's feeds are nobody's business.
    return absl::NotFoundError(absl::StrCat(
        "this session has no feed ", feed_id,
        " that waits to be attached; it may have passed attach_timeout"));
  }
  Record& record = *found->second;
  record.phase = FeedPhase::kAttached;
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
        found->second->owner.session_id != session_id ||
        found->second->feed == nullptr) {
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
  std::unique_ptr<Record> freed;
  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  if (found == records_.end()) return;
  Record& record = *found->second;
  if (record.phase == FeedPhase::kPending) {
    // Never exported to anybody.
    observer_("freed", InfoOf(record));
    freed = std::move(found->second);
    records_.erase(found);
    return;
  }
  if (record.phase != FeedPhase::kAttached) return;
  record.phase = FeedPhase::kEnding;
  ++num_ending_;
  observer_("ended", InfoOf(record));
  record.producer->Remove(record.feed.get(),
                          [this, feed_id] { OnRemoved(feed_id); });
}

void FeedTable::OnRemoved(uint64_t feed_id) {
  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  Record& record = *found->second;
  AddTo(InfoOf(record), &ended_[record.device]);
  record.slab = record.feed->TakeSlab();
  record.feed.reset();
  record.order.reset();
  record.scratch_reservation.Release();
  record.use.Reset();
  record.phase = FeedPhase::kLingering;
  --num_ending_;
  if (!record.is_slab_unused) {
    observer_("lingering", InfoOf(record));
    return;
  }
  observer_("freed", InfoOf(record));
  records_.erase(found);
}

void FeedTable::FreeSlab(uint64_t feed_id) {
  MutexLock lock(&mutex_);
  const auto found = records_.find(feed_id);
  if (found == records_.end()) return;
  Record& record = *found->second;
  record.is_slab_unused = true;
  if (record.phase != FeedPhase::kLingering) return;
  observer_("freed", InfoOf(record));
  records_.erase(found);
}

void FeedTable::EndSession(uint64_t session_id) {
  MutexLock lock(&mutex_);
  for (auto it = records_.begin(); it != records_.end();) {
    Record& record = *it->second;
    if (record.owner.session_id == session_id &&
        record.phase == FeedPhase::kPending) {
      observer_("freed", InfoOf(record));
      it = records_.erase(it);
    } else {
      ++it;
    }
  }
}

void FeedTable::ExpirePending() {
  const absl::Duration now = clock_->Monotonic();
  MutexLock lock(&mutex_);
  for (auto it = records_.begin(); it != records_.end();) {
    Record& record = *it->second;
    if (record.phase == FeedPhase::kPending && record.deadline <= now) {
      observer_("expired", InfoOf(record));
      it = records_.erase(it);
    } else {
      ++it;
    }
  }
}

std::vector<uint64_t> FeedTable::DropPending(const Dataset* dataset) {
  std::vector<uint64_t> attached;
  MutexLock lock(&mutex_);
  for (auto it = records_.begin(); it != records_.end();) {
    Record& record = *it->second;
    const bool is_meant =
        dataset == nullptr || record.use.dataset().get() == dataset;
    if (is_meant && record.phase == FeedPhase::kPending) {
      observer_("freed", InfoOf(record));
      it = records_.erase(it);
      continue;
    }
    if (is_meant && record.phase == FeedPhase::kAttached) {
      attached.push_back(record.id);
    }
    ++it;
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

std::vector<uint32_t> FeedTable::UidsOf(const std::string& dataset) const {
  std::vector<uint32_t> uids;
  MutexLock lock(&mutex_);
  for (const auto& [id, record] : records_) {
    if (record->options.dataset == dataset && record->feed != nullptr) {
      uids.push_back(record->owner.uid);
    }
  }
  return uids;
}

FeedInfo FeedTable::InfoOf(const Record& record) const {
  FeedInfo info;
  info.id = record.id;
  info.name = record.options.name;
  info.dataset = record.options.dataset;
  info.device = record.device;
  info.owner = record.owner;
  info.phase = record.phase;
  info.batch_size = record.options.batch_size;
  info.rank = record.options.rank;
  info.world_size = record.options.world_size;
  info.seed = record.options.seed;
  info.slab_bytes = record.slab_bytes;
  info.num_slots = record.num_slots;
  if (record.feed == nullptr) return info;
  constexpr auto kRelaxed = std::memory_order_relaxed;
  const FeedStats& stats = record.feed->stats();
  info.next = {stats.next_epoch.load(kRelaxed),
               stats.next_batch.load(kRelaxed)};
  info.num_batches = stats.num_batches.load(kRelaxed);
  info.num_samples = stats.num_samples.load(kRelaxed);
  info.num_slots_held = stats.num_slots_held.load(kRelaxed);
  info.num_ignored_releases = stats.num_ignored_releases.load(kRelaxed);
  info.num_ignored_seeks = stats.num_ignored_seeks.load(kRelaxed);
  info.num_launches = stats.num_launches.load(kRelaxed);
  info.client_wait_seconds = std::min(
      1e-9 * static_cast<double>(stats.client_wait_nanoseconds.load(kRelaxed)),
      absl::ToDoubleSeconds(clock_->Monotonic() - record.opened));
  info.daemon_wait_seconds =
      1e-9 * static_cast<double>(stats.daemon_wait_nanoseconds.load(kRelaxed));
  return info;
}

std::vector<FeedInfo> FeedTable::List() const {
  MutexLock lock(&mutex_);
  std::vector<FeedInfo> infos;
  for (const auto& [id, record] : records_) infos.push_back(InfoOf(*record));
  return infos;
}

size_t FeedTable::num_feeds() const {
  MutexLock lock(&mutex_);
  return records_.size();
}

void FeedTable::AddTo(const FeedInfo& info, FeedTotals* totals) {
  totals->num_batches += info.num_batches;
  totals->num_samples += info.num_samples;
  totals->num_ignored_releases += info.num_ignored_releases;
  totals->num_ignored_seeks += info.num_ignored_seeks;
  totals->client_wait_seconds += info.client_wait_seconds;
  totals->daemon_wait_seconds += info.daemon_wait_seconds;
}

std::map<std::string, FeedTotals> FeedTable::Totals() const {
  std::map<std::string, FeedTotals> totals;
  {
    MutexLock lock(&mutex_);
    totals = ended_;
    for (const auto& [id, record] : records_) {
      AddTo(InfoOf(*record), &totals[record->device]);
    }
  }
  for (const auto& [name, producer] : producers_) {
    totals[name].num_throttled_wakes = producer->num_throttled_wakes();
    totals[name].hand_over = producer->hand_over()->Read();
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
