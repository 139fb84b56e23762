// How a registry begins to load a dataset: its files are found by RunScans, its
// memory is reserved by QueueLoad.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/background_thread.h"
#include "base/status_macros.h"
#include "server/dataset/dataset_limits.h"
#include "server/dataset/load_cancelled.h"
#include "server/load/load_estimate.h"
#include "server/load/load_request.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {
namespace {

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
  entry->SetRequest(call->request.spec, call->caller);
  DATASETD_RETURN_IF_ERROR(ReserveTexts(*entry, {}));
  entry->request_id = call->request_id;
  entry->placement = call->placement;
  entry->dataset.set_device(call->placement.devices.Text());
  entry->scan = call->scan;
  entry->calls.push_back(call);
  entry->waiting.push_back(call);
  entry->started = call->started;
  entry->last_used = entry->started;
  entry->holders.insert(call->caller.session_id);
  table_.Add(entry);
  call->id = entry->id;
  return entry;
}

absl::Status DatasetRegistry::CheckSame(const DatasetEntry& entry,
                                        const LoadCall& call) const {
  if (!entry.visibility().IsSeenBy(call.caller) ||
      entry.state == DatasetState::kUnloading ||
      entry.state == DatasetState::kFailed || entry.is_being_cancelled() ||
      entry.request_id != call.request_id) {
    return DatasetTable::NameTaken(entry, call.caller);
  }
  return CheckAccess(entry, *call.request.spec);
}

absl::Status DatasetRegistry::Attach(DatasetEntry& entry,
                                     const std::shared_ptr<LoadCall>& call) {
  DATASETD_RETURN_IF_ERROR(entry.CheckReadable());
  entry.holders.insert(call->caller.session_id);
  entry.was_used = true;
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
    return is_stopping_ || entry == nullptr || !entry->is_being_cancelled();
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
  call->error = LoadCancelled();
  joining_.erase(call);
}

void DatasetRegistry::EndWaitingScan(const EntryPtr& entry) {
  const auto is_its = [&](const ScanJob& job) { return job.entry == entry; };
  if (std::erase_if(suspects_, is_its) > 0 ||
      scans_.Remove(entry->owner.uid, is_its)) {
    FailUnplanned(entry, LoadCancelled());
  }
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
    const uint32_t uid =
        job.call != nullptr ? job.call->caller.uid : job.entry->owner.uid;
    Scan(std::move(job));
    MutexLock lock(&mutex_);
    scans_.Finish(uid);
  }
}

void DatasetRegistry::Scan(ScanJob job) {
  const std::shared_ptr<SourceScan> scan =
      job.call != nullptr ? job.call->scan : job.entry->scan;
  absl::StatusOr<OpenedSource> opened = LoadCancelled();
  if (!scan->is_cancelled.load(std::memory_order_relaxed)) {
    opened = job.call == nullptr
                 ? OpenAgain(*job.entry, job.content_hash)
                 : sources_.OpenFiles(job.call->request, job.call->placement,
                                      job.call->caller.uid, scan);
  }
  MutexLock lock(&mutex_);
  if (job.entry == nullptr) job.entry = Join(job.call, opened);
  if (job.entry != nullptr && !QueueLoad(job.entry, opened) &&
      job.entry->is_restored && journal_ != nullptr) {
    journal_->EndRestore(job.entry->spec->name());
  }
  // Before anybody is told: only the table owns the entry, as in RunLoads, and
  // only the caller the call and its error.
  job = {};
  if (!opened.ok()) opened = LoadCancelled();
}

DatasetRegistry::EntryPtr DatasetRegistry::Join(
    const std::shared_ptr<LoadCall>& call,
    const absl::StatusOr<OpenedSource>& opened) {
  joining_.erase(call);
  const auto join =
      [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> absl::StatusOr<EntryPtr> {
    if (call->scan->is_cancelled.load(std::memory_order_relaxed)) {
      return LoadCancelled();
    }
    DATASETD_RETURN_IF_ERROR(opened.status());
    const EntryPtr present = table_.Get(call->request.spec->name());
    if (present == nullptr ||
        present->IsReplaceable(call->caller, call->request_id)) {
      return AddEntry(call);
    }
    DATASETD_RETURN_IF_ERROR(CheckSame(*present, *call));
    if (present->is_planned && present->dataset.spec_id() != opened->spec_id) {
      return DatasetTable::FilesChanged(*present);
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
      status = LoadCancelled();
    }
    if (const absl::Status failure = CheckDevices(*entry); !failure.ok()) {
      status = failure;
    }
    if (status.ok()) status = table_.CheckLimits(entry->owner, entry.get());
  } while (status.ok() && !opened->plan.needs_sizes() &&
           memory_.MakeRoom(*entry->spec, opened->placement, opened->plan,
                            entry->owner, entry->is_restored));
  if (status.ok()) status = Prepare(*entry, *std::move(opened));
  if (!status.ok()) {
    FailUnplanned(entry, status);
    return false;
  }
  if (entry->is_restored) {
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
    entry->index_memory.reset();
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
    DATASETD_RETURN_IF_ERROR(
        ReserveIndices(entry, source.plan, resident.placement));
  }
  const SourceInfo& info = source.reader->info();
  DATASETD_RETURN_IF_ERROR(ReserveTexts(entry, info.class_names));
  entry.SetSource(source, resident.placement);
  if (!entry.classes.empty() && entry.spec->class_names().empty() &&
      !info.is_unlike_sibling) {
    entry.sibling_note = table_.UnlikeSibling(entry);
  }
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

absl::StatusOr<v1::LoadEstimate> DatasetRegistry::Estimate(
    v1::DatasetSpec spec, const Caller& caller,
    std::shared_ptr<SourceScan> scan) {
  DATASETD_ASSIGN_OR_RETURN(LoadRequest request,
                            CheckRequest(std::move(spec), caller));
  DATASETD_ASSIGN_OR_RETURN(PlacementRequest placement,
                            sources_.FindPlacement(*request.spec));
  const MemoryBudget::Terms terms = TermsOf(*request.spec, caller);
  DATASETD_ASSIGN_OR_RETURN(
      OpenedSource source,
      sources_.OpenFiles(std::move(request), std::move(placement), caller.uid,
                         scan));
  return EstimateLoad(
      source, terms,
      DecodeAccount{.budget = &decode_budget_, .uid = caller.uid}, *scan);
}

}  // namespace datasetd
