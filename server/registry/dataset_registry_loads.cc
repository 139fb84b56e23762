// How a registry loads a dataset: its files are found by RunScans, its memory
// is reserved by QueueLoad, its samples are read by RunLoads.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/background_thread.h"
#include "base/status_macros.h"
#include "server/dataset/dataset_limits.h"
#include "server/load/load_request.h"
#include "server/load/replicate.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {
namespace {

absl::Status Cancelled() {
  return absl::CancelledError("the load was cancelled");
}

absl::Status ShuttingDown() {
  return absl::UnavailableError("the daemon is shutting down");
}

}  // namespace

absl::StatusOr<std::shared_ptr<LoadCall>> DatasetRegistry::BeginLoad(
    v1::DatasetSpec spec, const Caller& caller) {
  const auto call = std::make_shared<LoadCall>();
  DATASETD_ASSIGN_OR_RETURN(call->request,
                            CheckRequest(std::move(spec), caller));
  if (call->request.spec->format() == kPushedFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat("format: a dataset of format '", kPushedFormat,
                     "' has no files to "
                     "load; push it, or get it by its name"));
  }
  DATASETD_ASSIGN_OR_RETURN(call->placement,
                            sources_.FindPlacement(*call->request.spec));
  call->request_id =
      SpecId(call->request, call->placement.devices.Text(), SourceInfo());
  call->caller = caller;
  call->started = clock_->Monotonic();
  call->scan = std::make_shared<SourceScan>();
  MutexLock lock(&mutex_);
  const EntryPtr present = table_.Get(call->request.spec->name());
  EntryPtr added;
  if (present == nullptr || present->IsReplaceable(caller, call->request_id)) {
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

absl::StatusOr<uint64_t> DatasetRegistry::Load(v1::DatasetSpec spec,
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

absl::Status DatasetRegistry::CheckAdmission(const std::string& name,
                                             const Caller& caller) const {
  if (is_stopping_) return ShuttingDown();
  // A failure of this name is replaced.
  return table_.CheckLimits(caller, table_.Get(name).get());
}

absl::StatusOr<DatasetRegistry::EntryPtr> DatasetRegistry::AddEntry(
    const std::shared_ptr<LoadCall>& call) {
  DATASETD_RETURN_IF_ERROR(
      CheckAdmission(call->request.spec->name(), call->caller));
  auto entry = std::make_shared<DatasetEntry>();
  entry->spec = call->request.spec;
  entry->owner = call->caller;
  DATASETD_RETURN_IF_ERROR(ReserveTexts(*entry, {}));
  entry->request_id = call->request_id;
  entry->placement = call->placement;
  entry->scan = call->scan;
  entry->calls.push_back(call);
  entry->waiting.push_back(call);
  entry->started = call->started;
  entry->last_used = entry->started;
  entry->holders.insert(call->caller.session_id);
  entry->replaced = table_.Get(call->request.spec->name());
  table_.Add(entry);
  call->id = entry->id;
  return entry;
}

absl::Status DatasetRegistry::CheckSame(const DatasetEntry& entry,
                                        const LoadCall& call) const {
  if (!entry.visibility().IsSeenBy(call.caller) ||
      entry.state == DatasetState::kUnloading ||
      entry.state == DatasetState::kFailed ||
      entry.request_id != call.request_id) {
    return DatasetTable::NameTaken(entry, call.caller);
  }
  return absl::OkStatus();
}

absl::Status DatasetRegistry::Attach(DatasetEntry& entry,
                                     const std::shared_ptr<LoadCall>& call) {
  if (entry.is_cancelled()) {
    return absl::AbortedError(absl::StrCat("the load of dataset '",
                                           entry.spec->name(),
                                           "' is just being cancelled; try "
                                           "again"));
  }
  DATASETD_RETURN_IF_ERROR(entry.CheckReadable());
  entry.holders.insert(call->caller.session_id);
  entry.last_used = clock_->Monotonic();
  if (!entry.is_planned) entry.calls.push_back(call);
  std::erase_if(entry.waiting, [](const auto& call) { return call.expired(); });
  entry.waiting.push_back(call);
  call->id = entry.id;
  return absl::OkStatus();
}

void DatasetRegistry::AwaitCancelled(const std::string& name,
                                     absl::Duration timeout) const {
  const auto is_gone = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    const EntryPtr entry = table_.Get(name);
    return is_stopping_ || entry == nullptr || !entry->is_cancelled();
  };
  MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(Condition(&is_gone), timeout);
}

void DatasetRegistry::Cancel(const std::shared_ptr<LoadCall>& call) {
  MutexLock lock(&mutex_);
  if (joining_.contains(call)) return CancelJoin(call);
  const EntryPtr entry = table_.GetById(call->id);
  if (entry == nullptr) return;
  const uint64_t session_id = call->caller.session_id;
  // By another call of the session, or by the name.
  bool is_held = entry->getters.contains(session_id);
  std::erase_if(entry->waiting, [&](const auto& waiting) {
    const std::shared_ptr<LoadCall> other = waiting.lock();
    if (other == nullptr || other == call) return true;
    is_held = is_held || other->caller.session_id == session_id;
    return false;
  });
  if (!is_held) DropHold(*entry, session_id);
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
      opened = sources_.OpenFiles(job.call->request, job.call->placement, uid,
                                  job.call->scan);
    }
    MutexLock lock(&mutex_);
    scans_.Finish(uid);
    if (job.entry == nullptr) job.entry = Join(job.call, opened);
    if (job.entry != nullptr) QueueLoad(job.entry, opened);
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
    const EntryPtr present = table_.Get(call->request.spec->name());
    if (present == nullptr ||
        present->IsReplaceable(call->caller, call->request_id)) {
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

bool DatasetRegistry::QueueLoad(const EntryPtr& entry,
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
           memory_.MakeRoom(*entry->spec, opened->placement, opened->plan,
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

absl::Status DatasetRegistry::Prepare(DatasetEntry& entry,
                                      OpenedSource source) {
  PlacedMemory resident;
  if (source.plan.needs_sizes()) {
    // Nothing is reserved before they are known.
    resident.placement = PlanPlacement(source.placement, source.plan, {});
  } else {
    DATASETD_ASSIGN_OR_RETURN(
        resident, memory_.Reserve(*entry.spec, source.placement, source.plan,
                                  entry.owner));
  }
  DATASETD_RETURN_IF_ERROR(
      ReserveTexts(entry, source.reader->info().class_names));
  entry.SetSource(source, resident.placement);
  entry.replica_reservations = resident.TakeReplicas();
  entry.load = std::make_unique<DatasetLoad>(
      std::move(source), std::move(resident), AccountOf(entry.owner.uid));
  return absl::OkStatus();
}

absl::Status DatasetRegistry::ReserveTexts(
    DatasetEntry& entry, const std::vector<std::string>& class_names) {
  if (texts_ == nullptr) return absl::OkStatus();
  entry.text_reservation.Release();
  DATASETD_ASSIGN_OR_RETURN(
      entry.text_reservation,
      texts_->Reserve(
          MemoryKind::kText, entry.owner.uid,
          DatasetTextBytes(*entry.spec, class_names),
          absl::StrCat("the texts of dataset '", entry.spec->name(), "'"),
          TermsOf(*entry.spec, entry.owner)));
  return absl::OkStatus();
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

void DatasetRegistry::EndCancelledLoads() {
  BecomeBackgroundThread("cancel");
  const auto is_cancelled = [](const EntryPtr& entry) {
    return entry->is_cancelled();
  };
  while (true) {
    EntryPtr entry;
    {
      const auto has_work = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || loads_.HasWaiting(is_cancelled);
      };
      MutexLock lock(&mutex_, Condition(&has_work));
      if (is_stopping_) return;
      entry = loads_.TakeWaiting(is_cancelled);
    }
    auto replicas = Settle(*entry, Cancelled(), /*is_push=*/false);
    if (entry->is_restored && journal_ != nullptr) {
      journal_->EndRestore(entry->spec->name());
    }
    MutexLock lock(&mutex_);
    FinishLoad(*entry, std::move(replicas));
    // Before anybody is told, as in RunLoads.
    entry.reset();
  }
}

absl::StatusOr<Replicas> DatasetRegistry::RunLoad(DatasetEntry& entry) {
  const auto reserve =
      [&](const LoadPlan& plan) -> absl::StatusOr<PlacedMemory> {
    MutexLock lock(&mutex_);
    entry.replica_reservations.clear();
    while (memory_.MakeRoom(*entry.spec, entry.placement, plan, entry.owner)) {
    }
    DATASETD_ASSIGN_OR_RETURN(
        PlacedMemory reserved,
        memory_.Reserve(*entry.spec, entry.placement, plan, entry.owner));
    entry.SetPlan(plan, reserved.placement);
    entry.replica_reservations = reserved.TakeReplicas();
    return reserved;
  };
  RestoreJournal* const journal = entry.is_restored ? journal_ : nullptr;
  if (journal != nullptr) journal->BeginRead(entry.spec->name());
  auto first = entry.load->Run(cache_, reserve, entry.counters);
  if (journal != nullptr) {
    journal->EndRead(entry.spec->name());
    journal->EndRestore(entry.spec->name());
  }
  DATASETD_RETURN_IF_ERROR(first.status());
  Replicas replicas = {*std::move(first)};
  const std::vector<ServedDevice*>& devices = entry.placement.devices.devices;
  for (size_t i = 0; i < entry.replica_reservations.size(); ++i) {
    DATASETD_ASSIGN_OR_RETURN(
        replicas.emplace_back(),
        Replicate(*replicas.front(), devices[i + 1]->backend.get(),
                  std::move(entry.replica_reservations[i]), entry.counters,
                  AccountOf(entry.owner.uid)));
  }
  return replicas;
}

void DatasetRegistry::StoreInCache(
    const DatasetEntry& entry, const std::shared_ptr<const Dataset>& dataset) {
  if (cache_ == nullptr) return;
  DatasetCache::Description description = {.spec_id = entry.spec_id,
                                           .stored_by_uid = entry.owner.uid,
                                           .class_names = entry.class_names};
  if (entry.spec->format() == kPushedFormat) {
    description.owner_uid = entry.owner.uid;
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
  if (are_made && cache_ != nullptr) cache_->AwaitReleased();
  return replicas;
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
    entry.is_kept = true;
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
          absl::StrCat("the bad samples of dataset '", entry.spec->name(), "'"),
          TermsOf(*entry.spec, entry.owner)));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LoadEstimator>> DatasetRegistry::Estimate(
    v1::DatasetSpec spec, const Caller& caller,
    std::shared_ptr<SourceScan> scan) {
  DATASETD_ASSIGN_OR_RETURN(LoadRequest request,
                            CheckRequest(std::move(spec), caller));
  if (scan == nullptr) scan = std::make_shared<SourceScan>();
  DATASETD_ASSIGN_OR_RETURN(PlacementRequest placement,
                            sources_.FindPlacement(*request.spec));
  const MemoryBudget::Terms terms = TermsOf(*request.spec, caller);
  DATASETD_ASSIGN_OR_RETURN(
      OpenedSource source,
      sources_.OpenFiles(std::move(request), std::move(placement), caller.uid,
                         std::move(scan)));
  return std::make_unique<LoadEstimator>(
      std::move(source), terms,
      DecodeAccount{.budget = &decode_budget_, .uid = caller.uid});
}

}  // namespace datasetd
