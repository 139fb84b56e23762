#include "server/registry/dataset_registry.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/background_thread.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/cache/cached_source.h"
#include "server/dataset/bad_sample_text.h"
#include "server/dataset/dataset_limits.h"
#include "server/dataset/spec_id.h"
#include "server/load/replicate.h"

namespace datasetd {
namespace {

// A user has this many at a time; the threads are enough for four users.
constexpr int kMaxScansPerUser = 8;
constexpr int kNumScanThreads = 4 * kMaxScansPerUser;
constexpr int kMaxLoadsPerUser = 2;
constexpr int kNumLoadThreads = 4 * kMaxLoadsPerUser;
constexpr absl::Duration kOpenTimeout = absl::Seconds(30);

// For the buffers of loads: two of the largest, and one of one user's.
DecodeBudget::Limits StagingLimits(const DecodeBudget::Limits& limits) {
  const int64_t most = MaxLoadBufferBytes(limits.sample_bytes);
  return {.sample_bytes = most, .total_bytes = SaturatingMultiply(2, most)};
}

// For the lists of samples that sources keep; one user has half.
DecodeBudget::Limits ListLimits(const DecodeBudget::Limits& limits) {
  const int64_t most = SaturatingMultiply(4, limits.sample_bytes);
  return {.sample_bytes = most, .total_bytes = SaturatingMultiply(2, most)};
}

// DATA_LOSS once a READY dataset's samples cannot be read any more.
absl::Status CheckReadable(const DatasetEntry& entry) {
  if (entry.replicas.empty() || entry.replicas.front()->status().ok()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(
      absl::StrCat("dataset '", entry.spec.name,
                   "': ", entry.replicas.front()->status().message(),
                   "; unload it, and load it again"));
}

absl::Status Cancelled() {
  return absl::CancelledError("the load was cancelled");
}

absl::Status Gone() {
  return absl::NotFoundError(
      "the dataset was unloaded, or its load was cancelled, meanwhile");
}

absl::Status ShuttingDown() {
  return absl::UnavailableError("the daemon is shutting down");
}

// An initializer list would keep a copy.
std::vector<std::shared_ptr<DatasetEntry>> Only(
    std::shared_ptr<DatasetEntry> entry) {
  std::vector<std::shared_ptr<DatasetEntry>> entries;
  entries.push_back(std::move(entry));
  return entries;
}

}  // namespace

DatasetRegistry::DatasetRegistry(Options options, DeviceTable* devices,
                                 SourceOpener open_source, const Clock* clock,
                                 Observer observer)
    : cache_(options.cache),
      texts_(options.texts),
      journal_(options.journal),
      decode_budget_(options.decode_limits),
      staging_budget_(StagingLimits(options.decode_limits)),
      list_budget_(ListLimits(options.decode_limits)),
      sources_(devices, options.cache, &decode_budget_, &list_budget_,
               options.transform_limits, std::move(open_source)),
      devices_(devices),
      clock_(clock),
      observer_(std::move(observer)),
      table_(options.max_datasets, options.max_datasets_per_user),
      memory_(&mutex_, &table_, devices->pinned(), options.cache,
              [this](const DatasetEntry& entry) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                counters_.num_evicted.fetch_add(1, std::memory_order_relaxed);
                observer_(DatasetEvent::kEvicted, DescribeBriefly(entry),
                          Caller());
              }),
      scans_(kMaxScansPerUser),
      loads_(kMaxLoadsPerUser) {
  for (int i = 0; i < kNumScanThreads; ++i) {
    threads_.emplace_back([this] { RunScans(); });
  }
  for (int i = 0; i < kNumLoadThreads; ++i) {
    threads_.emplace_back([this] { RunLoads(); });
  }
}

void DatasetRegistry::CancelLoads() {
  MutexLock lock(&mutex_);
  is_stopping_ = true;
  scans_.Clear();
  loads_.Clear();
  for (const auto& [name, entry] : table_.entries()) entry->Cancel();
  for (const auto& call : joining_) call->scan->Cancel();
}

DatasetRegistry::~DatasetRegistry() {
  CancelLoads();
  for (std::thread& thread : threads_) thread.join();
}

absl::Status DatasetRegistry::CheckSpec(const DatasetSpec& spec,
                                        const Caller& caller) {
  if (spec.is_pinned && caller.session_id != 0 && !caller.is_privileged) {
    return absl::PermissionDeniedError(
        "pin: only root, the daemon's user and its configuration may pin a "
        "dataset");
  }
  return CheckSpecTexts(spec);
}

absl::StatusOr<std::shared_ptr<LoadCall>> DatasetRegistry::BeginLoad(
    DatasetSpec spec, const Caller& caller) {
  DATASETD_RETURN_IF_ERROR(CheckSpec(spec, caller));
  if (spec.format == kPushedFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("format: a dataset of format '", kPushedFormat,
                     "' has no files to "
                     "load; push it, or get it by its name"));
  }
  const auto call = std::make_shared<LoadCall>();
  DATASETD_ASSIGN_OR_RETURN(call->placement, sources_.FindPlacement(spec));
  call->spec = std::move(spec);
  call->caller = caller;
  call->started = clock_->Monotonic();
  call->request_id = SpecId(call->spec, SourceInfo());
  call->scan = std::make_shared<SourceScan>();
  MutexLock lock(&mutex_);
  const EntryPtr present = table_.Get(call->spec.name);
  EntryPtr added;
  if (present == nullptr || present->state == DatasetState::kFailed) {
    DATASETD_ASSIGN_OR_RETURN(added, AddEntry(call));
  } else {
    if (is_stopping_) return ShuttingDown();
    DATASETD_RETURN_IF_ERROR(CheckSame(*present, *call));
    if (!present->is_planned) {
      DATASETD_RETURN_IF_ERROR(Attach(*present, call));
      return call;
    }
    // Its files may have changed.
    joining_.insert(call);
  }
  scans_.Add(caller.uid, {call, std::move(added)});
  return call;
}

absl::StatusOr<uint64_t> DatasetRegistry::Load(DatasetSpec spec,
                                               const Caller& caller) {
  DATASETD_ASSIGN_OR_RETURN(const std::shared_ptr<LoadCall> call,
                            BeginLoad(std::move(spec), caller));
  MutexLock lock(&mutex_);
  const auto is_planned = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (!call->error.ok() || is_stopping_) return true;
    if (call->id == 0) return false;
    const EntryPtr entry = table_.GetById(call->id);
    return entry == nullptr || entry->is_planned ||
           entry->state != DatasetState::kLoading;
  };
  mutex_.Await(Condition(&is_planned));
  DATASETD_RETURN_IF_ERROR(call->error);
  const EntryPtr entry = table_.GetById(call->id);
  if (is_stopping_ && (entry == nullptr || !entry->is_planned)) {
    return ShuttingDown();
  }
  return call->id;
}

absl::StatusOr<DatasetRegistry::EntryPtr> DatasetRegistry::AddEntry(
    const std::shared_ptr<LoadCall>& call) {
  DATASETD_RETURN_IF_ERROR(CheckAdmission(call->spec.name, call->caller));
  auto entry = std::make_shared<DatasetEntry>();
  entry->spec = call->spec;
  entry->owner = call->caller;
  DATASETD_RETURN_IF_ERROR(ReserveTexts(*entry, call->spec, {}));
  entry->request_id = call->request_id;
  entry->placement = call->placement;
  entry->scan = call->scan;
  entry->calls.push_back(call);
  entry->started = call->started;
  entry->last_used = entry->started;
  entry->holders.insert(call->caller.session_id);
  entry->replaced = table_.Get(call->spec.name);
  table_.Add(entry);
  call->id = entry->id;
  return entry;
}

absl::Status DatasetRegistry::CheckSame(const DatasetEntry& entry,
                                        const LoadCall& call) const {
  if (!entry.visibility().IsSeenBy(call.caller) ||
      entry.state == DatasetState::kUnloading ||
      entry.request_id != call.request_id) {
    return DatasetTable::NameTaken(entry, call.caller);
  }
  return absl::OkStatus();
}

absl::Status DatasetRegistry::Attach(DatasetEntry& entry,
                                     const std::shared_ptr<LoadCall>& call) {
  if (entry.is_cancelled()) {
    return absl::AbortedError(absl::StrCat("the load of dataset '",
                                           entry.spec.name,
                                           "' is just being cancelled; try "
                                           "again"));
  }
  DATASETD_RETURN_IF_ERROR(CheckReadable(entry));
  entry.holders.insert(call->caller.session_id);
  entry.last_used = clock_->Monotonic();
  if (!entry.is_planned) entry.calls.push_back(call);
  call->id = entry.id;
  return absl::OkStatus();
}

void DatasetRegistry::RunScans() {
  BecomeBackgroundThread("scan");
  while (true) {
    ScanJob job;
    {
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || scans_.HasTurn();
      };
      MutexLock lock(&mutex_, Condition(&has_work));
      if (is_stopping_) return;
      job = scans_.Take();
    }
    const uint32_t uid = job.call->caller.uid;
    absl::StatusOr<OpenedSource> opened = Cancelled();
    if (!job.call->scan->is_cancelled.load(std::memory_order_relaxed)) {
      opened = sources_.OpenFiles(job.call->spec, job.call->placement, uid,
                                  job.call->scan);
    }
    MutexLock lock(&mutex_);
    scans_.Finish(uid);
    if (job.entry == nullptr) job.entry = Join(job.call, opened);
    if (job.entry != nullptr) PlanLoad(job.entry, opened);
    // Before anybody is told: only the table owns the entry, as in RunLoads,
    // and only the caller the call and its error.
    job = {};
    if (!opened.ok()) opened = Cancelled();
  }
}

DatasetRegistry::EntryPtr DatasetRegistry::Join(
    const std::shared_ptr<LoadCall>& call,
    const absl::StatusOr<OpenedSource>& opened) {
  joining_.erase(call);
  const auto join =
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::StatusOr<EntryPtr> {
    if (call->scan->is_cancelled.load(std::memory_order_relaxed)) {
      return Cancelled();
    }
    DATASETD_RETURN_IF_ERROR(opened.status());
    const EntryPtr present = table_.Get(call->spec.name);
    if (present == nullptr || present->state == DatasetState::kFailed) {
      return AddEntry(call);
    }
    DATASETD_RETURN_IF_ERROR(CheckSame(*present, *call));
    if (present->is_planned && present->spec_id != opened->spec_id) {
      return DatasetTable::NameTaken(*present, call->caller);
    }
    DATASETD_RETURN_IF_ERROR(Attach(*present, call));
    return nullptr;
  };
  absl::StatusOr<EntryPtr> entry = join();
  if (entry.ok()) return *std::move(entry);
  call->error = entry.status();
  return nullptr;
}

bool DatasetRegistry::PlanLoad(const EntryPtr& entry,
                               absl::StatusOr<OpenedSource>& opened) {
  absl::Status status;
  do {
    if (is_stopping_) return false;
    status = opened.status();
    if (entry->is_cancelled()) {
      status = Cancelled();
    }
    if (const absl::Status failure = CheckDevices(*entry); !failure.ok()) {
      status = failure;
    }
    if (status.ok()) status = table_.CheckLimits(entry->owner, entry.get());
  } while (status.ok() && !opened->plan.needs_sizes() &&
           memory_.MakeRoom(opened->spec, opened->placement, opened->plan,
                            entry->owner));
  if (status.ok()) status = Prepare(*entry, *std::move(opened));
  if (!status.ok()) {
    FailUnplanned(entry, status);
    return false;
  }
  if (entry->is_restored) {
    ++num_restoring_;
    observer_(DatasetEvent::kLoadingAgain, DescribeBriefly(*entry),
              entry->owner);
  } else {
    counters_.num_loads.fetch_add(1, std::memory_order_relaxed);
    observer_(DatasetEvent::kLoading, DescribeBriefly(*entry), entry->owner);
  }
  loads_.Add(entry->owner.uid, entry);
  return true;
}

void DatasetRegistry::FailUnplanned(const EntryPtr& entry,
                                    const absl::Status& status) {
  if (entry->is_restored) {
    FinishLoad(*entry, status);
  } else {
    entry->state = DatasetState::kFailed;
    entry->error = status;
    entry->finished = clock_->Monotonic();
    entry->text_reservation.Release();
    table_.Remove(*entry);
    if (entry->replaced != nullptr) table_.PutBack(entry->replaced);
  }
  for (const auto& call : entry->calls) call->error = status;
  entry->calls.clear();
  entry->replaced = nullptr;
}

absl::Status DatasetRegistry::AwaitPlanned(const std::string& name,
                                           const Caller& caller) {
  const EntryPtr entry = table_.Get(name);
  if (entry == nullptr || !entry->visibility().IsSeenBy(caller)) {
    return absl::OkStatus();
  }
  const auto is_planned = [this, &entry]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return entry->is_planned || entry->state != DatasetState::kLoading ||
           is_stopping_;
  };
  if (mutex_.AwaitWithTimeout(Condition(&is_planned), kOpenTimeout)) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      absl::StrCat("dataset '", name,
                   "' is being loaded, and its files are not found yet; try "
                   "again later"));
}

void DatasetRegistry::CancelJoin(const std::shared_ptr<LoadCall>& call) {
  call->scan->Cancel();
  // If it has not begun, nothing else ends it.
  if (!scans_.Remove(call->caller.uid,
                     [&](const ScanJob& job) { return job.call == call; })) {
    return;
  }
  call->error = Cancelled();
  joining_.erase(call);
}

void DatasetRegistry::Cancel(const std::shared_ptr<LoadCall>& call) {
  MutexLock lock(&mutex_);
  if (joining_.contains(call)) return CancelJoin(call);
  const EntryPtr entry = table_.GetById(call->id);
  if (entry != nullptr) DropHold(*entry, call->caller.session_id);
}

absl::Status DatasetRegistry::CheckAdmission(const std::string& name,
                                             const Caller& caller) const {
  if (is_stopping_) return ShuttingDown();
  // A failure of this name is replaced.
  return table_.CheckLimits(caller, table_.Get(name).get());
}

absl::StatusOr<DatasetRegistry::EntryPtr> DatasetRegistry::Admit(
    OpenedSource source, const Caller& caller) {
  auto entry = std::make_shared<DatasetEntry>();
  entry->owner = caller;
  entry->started = clock_->Monotonic();
  entry->last_used = entry->started;
  entry->holders.insert(caller.session_id);
  DATASETD_RETURN_IF_ERROR(Prepare(*entry, std::move(source)));
  table_.Add(entry);
  counters_.num_loads.fetch_add(1, std::memory_order_relaxed);
  observer_(DatasetEvent::kLoading, DescribeBriefly(*entry), caller);
  return entry;
}

absl::Status DatasetRegistry::Prepare(DatasetEntry& entry,
                                      OpenedSource source) {
  PlacedMemory resident;
  if (source.plan.needs_sizes()) {
    // Nothing is reserved before they are known.
    resident.placement = PlanPlacement(source.placement, source.plan, {});
  } else {
    DATASETD_ASSIGN_OR_RETURN(
        resident, memory_.Reserve(source.spec, source.placement, source.plan,
                                  entry.owner));
  }
  DATASETD_RETURN_IF_ERROR(
      ReserveTexts(entry, source.spec, source.reader->info().class_names));
  entry.SetSource(source, resident.placement);
  entry.replica_reservations = resident.TakeReplicas();
  entry.load =
      std::make_unique<DatasetLoad>(std::move(source), std::move(resident),
                                    DecodeAccount{.budget = &decode_budget_,
                                                  .uid = entry.owner.uid,
                                                  .staging = &staging_budget_});
  return absl::OkStatus();
}

absl::Status DatasetRegistry::ReserveTexts(
    DatasetEntry& entry, const DatasetSpec& spec,
    const std::vector<std::string>& class_names) {
  if (texts_ == nullptr) return absl::OkStatus();
  entry.text_reservation.Release();
  DATASETD_ASSIGN_OR_RETURN(
      entry.text_reservation,
      texts_->Reserve(MemoryKind::kText, entry.owner.uid,
                      DatasetTextBytes(spec, class_names),
                      absl::StrCat("the texts of dataset '", spec.name, "'"),
                      TermsOf(spec, entry.owner)));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> DatasetRegistry::Push(
    DatasetSpec spec, std::unique_ptr<SampleSource> source,
    const Caller& caller, std::function<void()> cancel) {
  DATASETD_RETURN_IF_ERROR(CheckSpec(spec, caller));
  DATASETD_ASSIGN_OR_RETURN(
      OpenedSource opened,
      sources_.OpenPush(std::move(spec), std::move(source)));
  EntryPtr entry;
  {
    MutexLock lock(&mutex_);
    do {
      DATASETD_RETURN_IF_ERROR(AwaitPlanned(opened.spec.name, caller));
      const EntryPtr present = table_.Get(opened.spec.name);
      if (present != nullptr && present->state != DatasetState::kFailed) {
        return DatasetTable::NameTaken(*present, caller);
      }
      DATASETD_RETURN_IF_ERROR(CheckAdmission(opened.spec.name, caller));
    } while (
        memory_.MakeRoom(opened.spec, opened.placement, opened.plan, caller));
    DATASETD_ASSIGN_OR_RETURN(entry, Admit(std::move(opened), caller));
    entry->cancel = std::move(cancel);
  }
  auto replicas = RunLoad(*entry);
  if (replicas.ok()) {
    {
      MutexLock lock(&mutex_);
      entry->spec_id =
          PushedSpecId(entry->spec.name, replicas->front()->content_hash(),
                       entry->owner.uid);
    }
    StoreInCache(*entry, replicas->front());
  }
  while (true) {
    replicas = Settle(*entry, std::move(replicas), /*is_push=*/true);
    MutexLock lock(&mutex_);
    // Just now.
    if (replicas.ok() &&
        (entry->is_cancelled() || !CheckDevices(*entry).ok())) {
      continue;
    }
    entry->cancel = nullptr;
    FinishLoad(*entry, std::move(replicas));
    DATASETD_RETURN_IF_ERROR(entry->error);
    return entry->id;
  }
}

void DatasetRegistry::Restore(std::vector<RestoredDataset> datasets) {
  std::vector<Restored> restored;
  MutexLock lock(&mutex_);
  for (RestoredDataset& dataset : datasets) {
    if (table_.Get(dataset.spec.name) != nullptr) continue;
    const auto entry = std::make_shared<DatasetEntry>();
    entry->spec = std::move(dataset.spec);
    entry->owner = dataset.owner;
    entry->is_restored = true;
    DatasetSpec spec = entry->spec;
    // If the device is not there, opening it says so.
    sources_.FindPlacement(spec).IgnoreError();
    entry->request_id = SpecId(spec, SourceInfo());
    entry->started = clock_->Monotonic();
    entry->last_used = entry->started;
    table_.Add(entry);
    counters_.num_loads.fetch_add(1, std::memory_order_relaxed);
    if (!dataset.refusal.ok()) {
      FinishLoad(*entry, dataset.refusal);
      continue;
    }
    entry->scan = std::make_shared<SourceScan>();
    restored.push_back({.entry = entry,
                        .content_hash = std::move(dataset.content_hash),
                        .is_suspect = dataset.is_suspect});
  }
  std::stable_partition(
      restored.begin(), restored.end(),
      [](const Restored& dataset) { return !dataset.is_suspect; });
  threads_.emplace_back([this, restored = std::move(restored)]() mutable {
    RunRestore(std::move(restored));
  });
}

void DatasetRegistry::RunRestore(std::vector<Restored> datasets) {
  BecomeBackgroundThread("restore");
  const auto is_alone = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_restoring_ == 0 || is_stopping_;
  };
  for (Restored& restored : datasets) {
    if (restored.is_suspect) {
      MutexLock lock(&mutex_, Condition(&is_alone));
    }
    const std::string name = restored.entry->spec.name;
    if (!BeginRestored(restored) && journal_ != nullptr) {
      journal_->EndRestore(name);
    }
    // Only the table owns the entry now, as in RunLoads.
    restored.entry.reset();
    MutexLock lock(&mutex_);
    if (is_stopping_) return;
  }
}

bool DatasetRegistry::BeginRestored(const Restored& restored) {
  DatasetEntry& entry = *restored.entry;
  // The spec does not change before the source is open.
  if (journal_ != nullptr) journal_->BeginRead(entry.spec.name);
  auto source = OpenAgain(entry, restored.content_hash);
  if (journal_ != nullptr) journal_->EndRead(entry.spec.name);
  MutexLock lock(&mutex_);
  return PlanLoad(restored.entry, source);
}

absl::StatusOr<OpenedSource> DatasetRegistry::OpenAgain(
    const DatasetEntry& entry, const std::string& content_hash) const {
  DATASETD_RETURN_IF_ERROR(CheckSpec(entry.spec, entry.owner));
  if (entry.spec.format == kPushedFormat) {
    return sources_.OpenPushed(entry.spec, content_hash, entry.owner.uid);
  }
  DatasetSpec spec = entry.spec;
  DATASETD_ASSIGN_OR_RETURN(PlacementRequest placement,
                            sources_.FindPlacement(spec));
  return sources_.OpenFiles(std::move(spec), std::move(placement),
                            entry.owner.uid, entry.scan);
}

absl::StatusOr<std::unique_ptr<LoadEstimator>> DatasetRegistry::Estimate(
    DatasetSpec spec, const Caller& caller,
    std::shared_ptr<SourceScan> scan) const {
  DATASETD_RETURN_IF_ERROR(CheckSpec(spec, caller));
  if (scan == nullptr) scan = std::make_shared<SourceScan>();
  const MemoryBudget::Terms terms = TermsOf(spec, caller);
  return sources_.Estimate(std::move(spec), caller.uid, terms, std::move(scan));
}

void DatasetRegistry::MakeRoom(const std::string& device, int64_t bytes) {
  const auto found = devices_->Find(device);
  if (!found.ok()) return;
  MutexLock lock(&mutex_);
  while (memory_.MakeRoom(*(*found)->budget, bytes)) {
  }
}

void DatasetRegistry::RunLoads() {
  BecomeBackgroundThread("load");
  while (true) {
    EntryPtr entry;
    {
      const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || loads_.HasTurn();
      };
      MutexLock lock(&mutex_, Condition(&has_work));
      if (is_stopping_) return;
      entry = loads_.Take();
    }
    const uint32_t uid = entry->owner.uid;
    auto replicas = RunLoad(*entry);
    if (replicas.ok()) StoreInCache(*entry, replicas->front());
    while (entry != nullptr) {
      replicas = Settle(*entry, std::move(replicas), /*is_push=*/false);
      MutexLock lock(&mutex_);
      // Just now.
      if (replicas.ok() &&
          (entry->is_cancelled() || !CheckDevices(*entry).ok())) {
        continue;
      }
      loads_.Finish(uid);
      FinishLoad(*entry, std::move(replicas));
      // Before anybody is told: the entry's memory is the table's alone.
      entry.reset();
    }
  }
}

absl::StatusOr<Replicas> DatasetRegistry::RunLoad(DatasetEntry& entry) {
  Replicas replicas;
  DATASETD_ASSIGN_OR_RETURN(replicas.emplace_back(), ReadFirst(entry));
  const std::vector<ServedDevice*>& devices = entry.placement.devices.devices;
  for (size_t i = 0; i < entry.replica_reservations.size(); ++i) {
    DATASETD_ASSIGN_OR_RETURN(
        replicas.emplace_back(),
        Replicate(*replicas.front(), devices[i + 1]->backend.get(),
                  std::move(entry.replica_reservations[i]), entry.counters,
                  {.budget = &decode_budget_,
                   .uid = entry.owner.uid,
                   .staging = &staging_budget_}));
  }
  return replicas;
}

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetRegistry::ReadFirst(
    DatasetEntry& entry) {
  const auto reserve =
      [&](const LoadPlan& plan) -> absl::StatusOr<PlacedMemory> {
    MutexLock lock(&mutex_);
    entry.replica_reservations.clear();
    while (memory_.MakeRoom(entry.spec, entry.placement, plan, entry.owner)) {
    }
    DATASETD_ASSIGN_OR_RETURN(
        PlacedMemory reserved,
        memory_.Reserve(entry.spec, entry.placement, plan, entry.owner));
    entry.SetPlan(plan, reserved.placement);
    entry.replica_reservations = reserved.TakeReplicas();
    return reserved;
  };
  if (journal_ == nullptr || !entry.is_restored) {
    return entry.load->Run(cache_, reserve, entry.counters);
  }
  journal_->BeginRead(entry.spec.name);
  auto dataset = entry.load->Run(cache_, reserve, entry.counters);
  journal_->EndRead(entry.spec.name);
  journal_->EndRestore(entry.spec.name);
  return dataset;
}

void DatasetRegistry::StoreInCache(
    const DatasetEntry& entry, const std::shared_ptr<const Dataset>& dataset) {
  if (cache_ == nullptr) return;
  DatasetCache::Description description = {.spec_id = entry.spec_id,
                                           .stored_by_uid = entry.owner.uid,
                                           .class_names = entry.class_names};
  if (entry.spec.format == kPushedFormat) {
    description.owner_uid = entry.owner.uid;
  }
  const BadSampleReport& bad_samples = dataset->bad_samples();
  if (bad_samples.num_samples > 0) {
    description.notes[kBadSamplesNote] = BadSamplesToText(bad_samples);
  }
  cache_->Store(std::move(description), dataset);
}

absl::StatusOr<Replicas> DatasetRegistry::Settle(
    DatasetEntry& entry, absl::StatusOr<Replicas> replicas, bool is_push) {
  entry.load.reset();
  entry.replica_reservations.clear();
  absl::Status status = replicas.status();
  if (entry.is_cancelled() && (status.ok() || is_push)) {
    status =
        is_push ? absl::CancelledError("the push was cancelled") : Cancelled();
  }
  // Whatever it met: that is why.
  if (const absl::Status failure = CheckDevices(entry); !failure.ok()) {
    status = failure;
  }
  if (status.ok()) status = ReserveReport(entry, *replicas->front());
  if (status.ok()) return replicas;
  const bool are_made = replicas.ok();
  replicas = status;
  if (are_made && cache_ != nullptr) cache_->AwaitLetGo();
  return replicas;
}

absl::Status DatasetRegistry::CheckDevices(const DatasetEntry& entry) const {
  for (const ServedDevice* const device : entry.placement.devices.devices) {
    DATASETD_RETURN_IF_ERROR(devices_->CheckServes(*device));
  }
  return absl::OkStatus();
}

std::vector<std::shared_ptr<const Dataset>> DatasetRegistry::FailDevice(
    const ServedDevice& device) {
  std::vector<std::shared_ptr<const Dataset>> lost;
  MutexLock lock(&mutex_);
  for (const auto& [name, entry] : table_.entries()) {
    const std::vector<ServedDevice*>& devices =
        entry->placement.devices.devices;
    if (std::find(devices.begin(), devices.end(), &device) == devices.end()) {
      continue;
    }
    if (entry->state == DatasetState::kLoading) {
      // A push ends at its next block, and says why.
      entry->counters.Cancel();
      if (entry->scan != nullptr) entry->scan->Cancel();
    }
    if (entry->state != DatasetState::kReady || !entry->IsLost()) continue;
    entry->state = DatasetState::kFailed;
    entry->error = devices_->CheckServes(device);
    entry->report_reservation.Release();
    counters_.num_failed.fetch_add(1, std::memory_order_relaxed);
    observer_(DatasetEvent::kFailed, DescribeBriefly(*entry), Caller());
    std::move(entry->replicas.begin(), entry->replicas.end(),
              std::back_inserter(lost));
    entry->replicas.clear();
  }
  table_.ForgetOldFailures();
  return lost;
}

void DatasetRegistry::FinishLoad(DatasetEntry& entry,
                                 absl::StatusOr<Replicas> replicas) {
  if (entry.is_restored && entry.is_planned) --num_restoring_;
  entry.finished = clock_->Monotonic();
  entry.last_used = entry.finished;
  if (replicas.ok()) {
    entry.replicas = *std::move(replicas);
    entry.fields = entry.replicas.front()->fields();
    entry.state = DatasetState::kReady;
    counters_.num_ready.fetch_add(1, std::memory_order_relaxed);
    counters_.loaded_bytes.fetch_add(
        static_cast<uint64_t>(entry.resident_bytes), std::memory_order_relaxed);
    observer_(DatasetEvent::kReady, DescribeBriefly(entry), entry.owner);
    return;
  }
  entry.state = DatasetState::kFailed;
  entry.error = replicas.status();
  entry.report_reservation.Release();
  const bool is_cancelled = absl::IsCancelled(entry.error);
  (is_cancelled ? counters_.num_cancelled : counters_.num_failed)
      .fetch_add(1, std::memory_order_relaxed);
  observer_(DatasetEvent::kFailed, DescribeBriefly(entry), entry.owner);
  if (is_cancelled) table_.Remove(entry);
  table_.ForgetOldFailures();
}

absl::Status DatasetRegistry::ReserveReport(DatasetEntry& entry,
                                            const Dataset& dataset) {
  const size_t bytes = dataset.bad_samples().num_text_bytes;
  if (texts_ == nullptr || bytes == 0) return absl::OkStatus();
  DATASETD_ASSIGN_OR_RETURN(
      entry.report_reservation,
      texts_->Reserve(
          MemoryKind::kText, entry.owner.uid, bytes,
          absl::StrCat("the bad samples of dataset '", entry.spec.name, "'"),
          TermsOf(entry.spec, entry.owner)));
  return absl::OkStatus();
}

absl::StatusOr<DatasetInfo> DatasetRegistry::Hold(const std::string& name,
                                                  const Caller& caller) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(const EntryPtr found, table_.Find(name, caller));
  DatasetEntry& entry = *found;
  if (entry.state == DatasetState::kLoading ||
      entry.state == DatasetState::kReady) {
    entry.holders.insert(caller.session_id);
    entry.last_used = clock_->Monotonic();
  }
  return entry.Describe(clock_->Monotonic());
}

DatasetInfo DatasetRegistry::DescribeBriefly(const DatasetEntry& entry) const {
  return entry.DescribeBriefly(clock_->Monotonic());
}

absl::StatusOr<DatasetInfo> DatasetRegistry::Await(
    uint64_t id, absl::Duration timeout) const {
  MutexLock lock(&mutex_);
  EntryPtr entry = table_.GetById(id);
  if (entry == nullptr) return Gone();
  return AwaitEntry(std::move(entry), timeout);
}

absl::StatusOr<DatasetInfo> DatasetRegistry::Await(
    const LoadCall& call, absl::Duration timeout) const {
  MutexLock lock(&mutex_);
  const auto is_settled = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (!call.error.ok() || is_stopping_) return true;
    if (call.id == 0) return false;
    const EntryPtr entry = table_.GetById(call.id);
    return entry == nullptr || entry->state != DatasetState::kLoading;
  };
  mutex_.AwaitWithTimeout(Condition(&is_settled), timeout);
  DATASETD_RETURN_IF_ERROR(call.error);
  if (call.id == 0) {
    DatasetInfo info;
    info.spec = call.spec;
    info.owner = call.caller;
    info.is_scanning = true;
    info.num_entries_scanned =
        call.scan->num_entries.load(std::memory_order_relaxed);
    info.elapsed = clock_->Monotonic() - call.started;
    return info;
  }
  const EntryPtr entry = table_.GetById(call.id);
  if (entry == nullptr) return Gone();
  return entry->Describe(clock_->Monotonic());
}

absl::StatusOr<DatasetInfo> DatasetRegistry::Await(
    const std::string& name, absl::Duration timeout) const {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(EntryPtr entry, table_.Find(name, Caller()));
  return AwaitEntry(std::move(entry), timeout);
}

absl::StatusOr<DatasetInfo> DatasetRegistry::AwaitEntry(
    EntryPtr entry, absl::Duration timeout) const {
  const auto is_settled = [this, &entry]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return entry->state != DatasetState::kLoading || is_stopping_;
  };
  mutex_.AwaitWithTimeout(Condition(&is_settled), timeout);
  return entry->Describe(clock_->Monotonic());
}

std::vector<DatasetInfo> DatasetRegistry::List(const Caller& caller,
                                               const std::string& after,
                                               size_t limit) const {
  std::vector<DatasetInfo> infos;
  MutexLock lock(&mutex_);
  const auto& entries = table_.entries();
  for (auto it = entries.upper_bound(after);
       it != entries.end() && infos.size() < limit; ++it) {
    if (!it->second->visibility().IsSeenBy(caller)) continue;
    infos.push_back(DescribeBriefly(*it->second));
  }
  return infos;
}

size_t DatasetRegistry::num_datasets() const {
  MutexLock lock(&mutex_);
  return table_.entries().size();
}

absl::StatusOr<DatasetRegistry::Replica> DatasetRegistry::ReplicaOn(
    const DatasetEntry& entry, const std::string& device) const {
  const absl::StatusOr<ServedDevice*> asked = devices_->Find(device);
  std::string there;
  for (const ServedDevice* const served : entry.placement.devices.devices) {
    const bool is_meant = asked.ok() && *asked == served;
    if (!device.empty() && is_meant) {
      DATASETD_RETURN_IF_ERROR(devices_->CheckServes(*served));
    }
    if (served->health->has_failed()) continue;
    absl::StrAppend(&there, there.empty() ? "" : ", ", served->Description());
    if (!device.empty() && !is_meant) continue;
    for (const auto& replica : entry.replicas) {
      const std::vector<Backend*>& backends = replica->backends();
      const auto found =
          std::find(backends.begin(), backends.end(), served->backend.get());
      if (found != backends.end()) return Replica{replica, *found};
    }
  }
  // It is just about to become FAILED.
  if (there.empty()) return CheckDevices(entry);
  return absl::InvalidArgumentError(absl::StrCat(
      "device: dataset '", entry.spec.name, "' is not on ",
      asked.ok() ? (*asked)->Description() : device, "; it is on ", there,
      ". Take one of these, or load it under another name with device=each"));
}

absl::StatusOr<DatasetUse> DatasetRegistry::Use(const std::string& name,
                                                const Caller& caller,
                                                const std::string& device) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(const EntryPtr found, table_.Find(name, caller));
  DatasetEntry& entry = *found;
  switch (entry.state) {
    case DatasetState::kReady:
      DATASETD_RETURN_IF_ERROR(CheckReadable(entry));
      break;
    case DatasetState::kLoading:
      return absl::FailedPreconditionError(absl::StrCat(
          "dataset '", name, "' is still loading; wait for LoadDataset"));
    case DatasetState::kUnloading:
      return absl::FailedPreconditionError(
          absl::StrCat("dataset '", name, "' is being unloaded"));
    case DatasetState::kFailed:
      return absl::FailedPreconditionError(absl::StrCat(
          "dataset '", name, "' is not there: ", entry.error.message(),
          "; load it again"));
  }
  DATASETD_ASSIGN_OR_RETURN(Replica replica, ReplicaOn(entry, device));
  ++entry.num_feeds_of[caller.uid];
  entry.last_used = clock_->Monotonic();
  return DatasetUse(this, entry.id, caller.uid, entry.visibility(),
                    std::move(replica.dataset), replica.backend);
}

void DatasetRegistry::EndUse(uint64_t entry_id, uint32_t uid) {
  MutexLock lock(&mutex_);
  EntryPtr entry = table_.GetById(entry_id);
  if (entry == nullptr) return;
  if (--entry->num_feeds_of[uid] == 0) entry->num_feeds_of.erase(uid);
  entry->last_used = clock_->Monotonic();
  if (!entry->num_feeds_of.empty() ||
      entry->state != DatasetState::kUnloading) {
    return;
  }
  observer_(DatasetEvent::kUnloaded, DescribeBriefly(*entry), Caller());
  table_.Remove(*entry);
  memory_.Free(Only(std::move(entry)));
}

bool DatasetRegistry::IsReady(uint64_t entry_id) const {
  MutexLock lock(&mutex_);
  const EntryPtr entry = table_.GetById(entry_id);
  return entry != nullptr && entry->state == DatasetState::kReady;
}

absl::StatusOr<Replicas> DatasetRegistry::Unload(const std::string& name,
                                                 bool force,
                                                 const Caller& caller) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(EntryPtr found, table_.Find(name, caller));
  DatasetEntry& entry = *found;
  if (force && !caller.is_privileged) {
    for (const auto& [uid, num_feeds] : entry.num_feeds_of) {
      if (uid == caller.uid) continue;
      return absl::PermissionDeniedError(absl::StrCat(
          "dataset '", name, "' has open feeds of user ", uid,
          "; only that user, root or the daemon's user can end them"));
    }
  }
  if (!caller.is_privileged && caller.uid != entry.owner.uid) {
    return absl::PermissionDeniedError(absl::StrCat(
        "dataset '", name, "' was loaded by uid ", entry.owner.uid,
        "; only that user, root and the daemon's user may unload it"));
  }
  if (!entry.num_feeds_of.empty() && !force) {
    return absl::FailedPreconditionError(absl::StrCat(
        "dataset '", name, "' has ", entry.num_feeds(),
        " open feeds; close them, or force the unload, which ends them"));
  }
  observer_(DatasetEvent::kUnloadAsked, DescribeBriefly(entry), caller);
  if (entry.state == DatasetState::kLoading) {
    entry.Cancel();
    entry.holders.clear();
    return Replicas();
  }
  if (!entry.num_feeds_of.empty()) {
    entry.state = DatasetState::kUnloading;
    entry.holders.clear();
    return entry.replicas;
  }
  observer_(DatasetEvent::kUnloaded, DescribeBriefly(entry), caller);
  table_.Remove(entry);
  memory_.Free(Only(std::move(found)));
  return Replicas();
}

void DatasetRegistry::DropHold(DatasetEntry& entry, uint64_t session_id) {
  if (entry.holders.erase(session_id) == 0) return;
  entry.last_used = clock_->Monotonic();
  if (entry.holders.empty() && entry.state == DatasetState::kLoading &&
      !entry.is_restored) {
    entry.Cancel();
  }
}

absl::Status DatasetRegistry::Release(const std::string& name,
                                      const Caller& caller) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(const EntryPtr entry, table_.Find(name, caller));
  DropHold(*entry, caller.session_id);
  return absl::OkStatus();
}

void DatasetRegistry::ReleaseSession(uint64_t session_id) {
  MutexLock lock(&mutex_);
  for (auto it = joining_.begin(); it != joining_.end();) {
    const std::shared_ptr<LoadCall> call = *it++;
    if (call->caller.session_id == session_id) CancelJoin(call);
  }
  for (const auto& [name, entry] : table_.entries()) {
    DropHold(*entry, session_id);
  }
}

}  // namespace datasetd
