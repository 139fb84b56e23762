// How a registry loads a dataset, from the call to READY or FAILED.

#include <malloc.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"
#include "server/dataset/dataset_limits.h"
#include "server/dataset/load_cancelled.h"
#include "server/load/load_request.h"
#include "server/load/replicate.h"
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
  call->registry = this;
  call->caller = caller;
  call->started = clock_->Monotonic();
  DATASETD_RETURN_IF_ERROR(owner_.Call([&] { return Begin(call); }));
  return call;
}

absl::Status DatasetRegistry::Begin(const CallPtr& call) {
  if (is_stopping_) return ShuttingDown();
  const EntryPtr present = table_.Get(call->request.spec->name());
  if (present == nullptr ||
      present->IsReplaceable(call->caller, call->request_id)) {
    return AddEntry(call);
  }
  if (present->stage == Stage::kEnding &&
      present->visibility().IsSeenBy(call->caller)) {
    waiting_calls_.push_back(call);
    return absl::OkStatus();
  }
  DATASETD_RETURN_IF_ERROR(CheckSame(*present, *call));
  if (!present->is_planned()) return Attach(*present, call);
  CheckFiles(*present, call);
  return absl::OkStatus();
}

absl::Status DatasetRegistry::CheckAdmission(const std::string& name,
                                             const Caller& caller) const {
  if (is_stopping_) return ShuttingDown();
  // A failure of this name is replaced.
  return table_.CheckLimits(caller, table_.Get(name).get());
}

DatasetRegistry::EntryPtr DatasetRegistry::MakeEntry(
    std::shared_ptr<const v1::DatasetSpec> spec, const Caller& owner) const {
  const auto entry = std::make_shared<DatasetEntry>();
  entry->SetRequest(std::move(spec), owner);
  entry->started = clock_->Monotonic();
  entry->holds.last_used = entry->started;
  return entry;
}

absl::Status DatasetRegistry::AddEntry(const CallPtr& call) {
  DATASETD_RETURN_IF_ERROR(
      CheckAdmission(call->request.spec->name(), call->caller));
  const EntryPtr entry = MakeEntry(call->request.spec, call->caller);
  DATASETD_RETURN_IF_ERROR(ReserveTexts(*entry, {}));
  entry->request_id = call->request_id;
  entry->placement = call->placement;
  entry->dataset.set_device(call->placement.devices.Text());
  entry->calls.push_back(call);
  entry->started = call->started;
  entry->holds.sessions.insert(call->caller.session_id);
  table_.Add(entry);
  call->id = entry->id;
  call->scan = entry->work->scan;
  scans_.Add(entry->owner.uid, {.entry = entry,
                                .spec = entry->spec,
                                .owner = entry->owner,
                                .scan = entry->work->scan});
  Dispatch();
  return absl::OkStatus();
}

absl::Status DatasetRegistry::CheckSame(const DatasetEntry& entry,
                                        const LoadCall& call) {
  if (!entry.visibility().IsSeenBy(call.caller) ||
      entry.state == DatasetState::kUnloading ||
      entry.state == DatasetState::kFailed ||
      entry.request_id != call.request_id) {
    return DatasetTable::NameTaken(entry, call.caller);
  }
  return CheckAccess(entry, *call.request.spec);
}

absl::Status DatasetRegistry::Attach(DatasetEntry& entry, const CallPtr& call) {
  DATASETD_RETURN_IF_ERROR(entry.CheckReadable());
  entry.holds.Add(call->caller.session_id, clock_->Monotonic());
  std::erase_if(entry.calls, [](const auto& call) { return call.expired(); });
  entry.calls.push_back(call);
  call->id = entry.id;
  if (entry.state != DatasetState::kLoading) Settle(*call, absl::OkStatus());
  return absl::OkStatus();
}

void DatasetRegistry::Settle(LoadCall& call, const absl::Status& error) {
  if (std::exchange(call.is_settled, true)) return;
  call.error = error;
  call.settled.Open();
}

void DatasetRegistry::SettleAll(DatasetEntry& entry,
                                const absl::Status& error) {
  for (const std::weak_ptr<LoadCall>& weak : entry.calls) {
    if (const CallPtr call = weak.lock(); call != nullptr) {
      Settle(*call, error);
    }
  }
}

void DatasetRegistry::CheckFiles(DatasetEntry& entry, const CallPtr& call) {
  const uint32_t uid = call->caller.uid;
  std::shared_ptr<FileCheck>& check = entry.checks[uid];
  const bool is_new = check == nullptr;
  if (is_new) {
    check = std::make_shared<FileCheck>();
    check->uid = uid;
    check->entry_id = entry.id;
    scans_.Add(uid, {.check = check,
                     .spec = call->request.spec,
                     .owner = call->caller,
                     .scan = check->scan});
  }
  // What a look that has begun found may be older than the call, which begins
  // again when it has ended.
  (check->has_begun ? waiting_calls_ : check->calls).push_back(call);
  call->scan = check->scan;
  // Calls that come with this one, or wait with it, share the look.
  if (is_new) owner_.Post([this] { Dispatch(); });
}

void DatasetRegistry::OnChecked(FileCheck& check,
                                const absl::StatusOr<std::string>& spec_id) {
  const EntryPtr entry = table_.GetById(check.entry_id);
  if (entry == nullptr) return;
  const auto found = entry->checks.find(check.uid);
  if (found == entry->checks.end() || found->second.get() != &check) return;
  const std::shared_ptr<FileCheck> kept = std::move(found->second);
  entry->checks.erase(found);
  for (const CallPtr& call : check.calls) {
    absl::Status status = spec_id.status();
    if (status.ok() && *spec_id != entry->dataset.spec_id()) {
      status = DatasetTable::FilesChanged(*entry);
    }
    if (status.ok()) status = Attach(*entry, call);
    if (!status.ok()) Settle(*call, status);
  }
  GoOn();
}

void DatasetRegistry::EndCheck(const std::shared_ptr<FileCheck>& check) {
  check->scan->Cancel();
  scans_.Remove(check->uid,
                [&](const ScanTask& task) { return task.check == check; });
  waiting_calls_.insert(waiting_calls_.end(), check->calls.begin(),
                        check->calls.end());
  GoOn();
}

std::vector<DatasetRegistry::CallPtr> DatasetRegistry::WaitingCalls() const {
  std::vector<CallPtr> all = waiting_calls_;
  for (const auto& [name, entry] : table_.entries()) {
    for (const auto& [uid, check] : entry->checks) {
      all.insert(all.end(), check->calls.begin(), check->calls.end());
    }
  }
  return all;
}

bool DatasetRegistry::CancelWaiting(const CallPtr& call) {
  const EntryPtr entry = table_.Get(call->request.spec->name());
  size_t num_removed = std::erase(waiting_calls_, call);
  if (entry != nullptr && entry->checks.contains(call->caller.uid)) {
    const auto check = entry->checks[call->caller.uid];
    num_removed += std::erase(check->calls, call);
    if (check->calls.empty()) {
      entry->checks.erase(check->uid);
      EndCheck(check);
    }
  }
  if (num_removed == 0) return false;
  Settle(*call, LoadCancelled());
  return true;
}

absl::StatusOr<DatasetInfo> LoadCall::Await(absl::Duration timeout) {
  settled.Await(timeout);
  return registry->DescribeFor(*this);
}

void LoadCall::Cancel() { registry->GiveUp(shared_from_this()); }

void DatasetRegistry::GiveUp(const CallPtr& call) {
  owner_.Call([&] {
    if (CancelWaiting(call)) return true;
    const EntryPtr entry = table_.GetById(call->id);
    if (entry == nullptr) return true;
    const uint64_t session_id = call->caller.session_id;
    // By another call of the session, or by the name.
    bool is_held = entry->holds.lasting.contains(session_id);
    call->is_given_up = true;
    for (const std::weak_ptr<LoadCall>& weak : entry->calls) {
      const CallPtr other = weak.lock();
      is_held = is_held || (other != nullptr && !other->is_given_up &&
                            other->caller.session_id == session_id);
    }
    if (!is_held) DropHold(entry, session_id);
    return true;
  });
}

void DatasetRegistry::Dispatch() {
  if (is_stopping_) return;
  while (scans_.HasTurn()) {
    const auto task = std::make_shared<ScanTask>(scans_.Take());
    if (task->check != nullptr) {
      task->check->has_begun = true;
    } else {
      Apply(task->entry, StageEvent::kScanBegun);
    }
    workers_->Run([this, task] { Scan(*task); });
  }
  while (loads_.HasTurn()) {
    EntryPtr entry = loads_.Take();
    Apply(entry, StageEvent::kReadBegun);
    const auto load =
        std::make_shared<PreparedLoad>(std::move(entry->work->prepared));
    workers_->Run([this, entry = std::move(entry), load]() mutable {
      auto replicas =
          std::make_shared<absl::StatusOr<Replicas>>(Read(*entry, *load));
      *load = PreparedLoad();
      if (replicas->ok()) StoreInCache(*entry, (*replicas)->front());
      owner_.Post(
          [this, entry = std::move(entry), replicas = std::move(replicas)] {
            loads_.Finish(entry->owner.uid);
            OnRead(entry, *replicas);
            Dispatch();
          });
    });
  }
}

absl::StatusOr<OpenedSource> DatasetRegistry::Open(const ScanTask& task) const {
  RestoreJournal* const journal = task.is_restored ? journal_ : nullptr;
  const std::string& name = task.spec->name();
  if (journal != nullptr) journal->BeginRead(name);
  const absl::Cleanup end_read = [&] {
    if (journal != nullptr) journal->EndRead(name);
  };
  DATASETD_ASSIGN_OR_RETURN(LoadRequest request,
                            CheckRequest(*task.spec, task.owner));
  if (task.spec->format() == kPushedFormat) {
    return sources_.OpenPushed(std::move(request), task.content_hash,
                               task.owner.uid);
  }
  DATASETD_ASSIGN_OR_RETURN(PlacementRequest placement,
                            sources_.FindPlacement(*task.spec));
  return sources_.OpenFiles(std::move(request), std::move(placement),
                            task.owner.uid, task.scan);
}

void DatasetRegistry::Scan(ScanTask& task) {
  const uint32_t uid = task.owner.uid;
  auto opened = std::make_shared<absl::StatusOr<OpenedSource>>(LoadCancelled());
  if (!task.scan->is_cancelled.load(std::memory_order_relaxed)) {
    *opened = Open(task);
  }
  if (task.check == nullptr) {
    owner_.Post(
        [this, uid, entry = std::move(task.entry), opened = std::move(opened)] {
          scans_.Finish(uid);
          OnScanned(entry, *opened);
          Dispatch();
        });
    return;
  }
  absl::StatusOr<std::string> spec_id = LoadCancelled();
  if (opened->ok()) {
    spec_id = (*opened)->spec_id;
  } else {
    spec_id = opened->status();
  }
  *opened = LoadCancelled();
  owner_.Post(
      [this, uid, check = std::move(task.check), spec_id = std::move(spec_id)] {
        scans_.Finish(uid);
        OnChecked(*check, spec_id);
        Dispatch();
      });
}

void DatasetRegistry::OnScanned(const EntryPtr& entry,
                                absl::StatusOr<OpenedSource>& opened) {
  if (is_stopping_) return EndRestore(*entry);
  if (!opened.ok()) {
    if (entry->stage != Stage::kEnding) entry->work->error = opened.status();
    return Fail(entry);
  }
  entry->work->prepared.source = *std::move(opened);
  // It was cancelled meanwhile.
  if (entry->stage == Stage::kEnding) return DropWork(entry);
  Apply(entry, StageEvent::kScanned);
  TryReserve(entry);
}

void DatasetRegistry::TryReserve(const EntryPtr& entry) {
  if (is_stopping_) return;
  const OpenedSource& source = *entry->work->prepared.source;
  absl::Status status = CheckDevices(*entry);
  if (status.ok()) status = table_.CheckLimits(entry->owner, entry.get());
  if (status.ok() && !source.plan.needs_sizes() &&
      memory_.MakeRoom(*entry->spec, source.placement, source.plan,
                       entry->owner, entry->restoring.is_restored)) {
    return;
  }
  if (status.ok()) status = Prepare(*entry);
  if (!status.ok()) {
    entry->work->error = status;
    return Apply(entry, StageEvent::kCancelled);
  }
  Apply(entry, StageEvent::kReserved);
  if (!entry->restoring.is_restored) {
    ++totals_.num_loads;
  }
  observer_(entry->restoring.is_restored ? DatasetEvent::kLoadingAgain
                                         : DatasetEvent::kLoading,
            DescribeBriefly(*entry), entry->owner);
  loads_.Add(entry->owner.uid, entry);
  Dispatch();
}

absl::Status DatasetRegistry::Prepare(DatasetEntry& entry) {
  PreparedLoad& prepared = entry.work->prepared;
  OpenedSource& source = *prepared.source;
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
  if (!info.class_names.empty() && entry.spec->class_names().empty() &&
      !info.is_unlike_sibling) {
    entry.content.sibling_note = table_.UnlikeSibling(entry);
  }
  prepared.replica_reservations = resident.TakeReplicas();
  prepared.load =
      std::make_unique<DatasetLoad>(std::move(source), std::move(resident),
                                    sources_.AccountOf(entry.owner.uid));
  prepared.source.reset();
  return absl::OkStatus();
}

absl::StatusOr<Replicas> DatasetRegistry::Read(DatasetEntry& entry,
                                               PreparedLoad& load) {
  // Each thread's heap keeps what the load has used.
  const absl::Cleanup trim = [] { malloc_trim(0); };
  const auto reserve =
      [&](const LoadPlan& plan) -> absl::StatusOr<PlacedMemory> {
    load.replica_reservations.clear();
    absl::StatusOr<PlacedMemory> reserved;
    Ask([&] { return ReserveAgain(entry, plan, reserved); });
    if (reserved.ok()) load.replica_reservations = reserved->TakeReplicas();
    return reserved;
  };
  RestoreJournal* const journal =
      entry.restoring.is_restored ? journal_ : nullptr;
  if (journal != nullptr) journal->BeginRead(entry.spec->name());
  auto first = load.load->Run(cache_, reserve, entry.work->counters);
  if (journal != nullptr) journal->EndRead(entry.spec->name());
  DATASETD_RETURN_IF_ERROR(first.status());
  Replicas replicas = {*std::move(first)};
  const std::vector<ServedDevice*>& devices = entry.placement.devices.devices;
  for (size_t i = 0; i < load.replica_reservations.size(); ++i) {
    DATASETD_ASSIGN_OR_RETURN(
        replicas.emplace_back(),
        Replicate(*replicas.front(), devices[i + 1]->backend.get(),
                  std::move(load.replica_reservations[i]), entry.work->counters,
                  sources_.AccountOf(entry.owner.uid)));
  }
  return replicas;
}

bool DatasetRegistry::ReserveAgain(DatasetEntry& entry, const LoadPlan& plan,
                                   absl::StatusOr<PlacedMemory>& reserved) {
  if (memory_.MakeRoom(*entry.spec, entry.placement, plan, entry.owner,
                       entry.restoring.is_restored)) {
    return false;
  }
  reserved = memory_.Reserve(*entry.spec, entry.placement, plan, entry.owner);
  if (!reserved.ok()) return true;
  const absl::Status status = ReserveIndices(entry, plan, reserved->placement);
  if (status.ok()) {
    entry.SetPlan(plan, reserved->placement);
  } else {
    reserved = status;
  }
  return true;
}

void DatasetRegistry::StoreInCache(
    const DatasetEntry& entry, const std::shared_ptr<const Dataset>& dataset) {
  if (cache_ == nullptr) return;
  CacheHeader header = {.spec_id = entry.dataset.spec_id(),
                        .stored_by_uid = entry.owner.uid,
                        .class_names = *entry.content.classes};
  if (entry.spec->format() == kPushedFormat) header.owner_uid = entry.owner.uid;
  cache_->Store(std::move(header), dataset);
}

void DatasetRegistry::OnRead(const EntryPtr& entry,
                             absl::StatusOr<Replicas>& replicas) {
  LoadWork& work = *entry->work;
  work.cancel = nullptr;
  absl::Status status = replicas.status();
  const bool is_cancelled =
      work.counters.is_cancelled.load(std::memory_order_relaxed);
  if (is_cancelled && (status.ok() || entry->is_push())) {
    status = entry->is_push() ? absl::CancelledError("the push was cancelled")
                              : LoadCancelled();
  }
  if (status.ok()) status = CheckDevices(*entry);
  if (status.ok()) status = ReserveReport(*entry, *replicas->front());
  if (!status.ok()) {
    work.error = status;
    if (!replicas.ok()) return Fail(entry);
    ResidentMemory::Garbage garbage(replicas->begin(), replicas->end());
    replicas->clear();
    return memory_.Free(std::move(garbage), [this, entry] { Fail(entry); });
  }
  EndRestore(*entry);
  entry->finished = clock_->Monotonic();
  entry->holds.last_used = entry->finished;
  entry->replaced = nullptr;
  entry->SetReplicas(*std::move(replicas));
  Apply(entry, StageEvent::kRead);
  entry->kept_for = entry->owner.uid;
  ++totals_.num_ready;
  totals_.loaded_bytes +=
      static_cast<uint64_t>(entry->dataset.resident_bytes());
  observer_(DatasetEvent::kReady, DescribeBriefly(*entry), entry->owner);
  SettleAll(*entry, absl::OkStatus());
}

void DatasetRegistry::DropWork(const EntryPtr& entry) {
  const uint32_t uid = entry->owner.uid;
  const auto is_its = [&](const ScanTask& task) { return task.entry == entry; };
  std::erase_if(suspects_, is_its);
  scans_.Remove(uid, is_its);
  loads_.Remove(uid, [&](const EntryPtr& other) { return other == entry; });
  if (entry->work->prepared.is_empty()) return Fail(entry);
  memory_.Free({std::make_shared<PreparedLoad>(
                   std::exchange(entry->work->prepared, {}))},
               [this, entry] { Fail(entry); });
}

void DatasetRegistry::Fail(const EntryPtr& entry) {
  const bool is_restored = entry->restoring.is_restored;
  const bool is_planned = entry->is_planned();
  // Whatever it met: that is why.
  absl::Status error = CheckDevices(*entry);
  if (error.ok()) error = entry->work->error;
  if (error.ok()) error = LoadCancelled();
  if (entry->stage != Stage::kAsked) EndRestore(*entry);
  const bool is_cancelled = absl::IsCancelled(error);
  // A load that was not planned is known to its callers alone.
  const bool is_told = is_planned || is_restored;
  const bool stays = is_told && !is_cancelled && !entry->is_push();
  entry->finished = clock_->Monotonic();
  entry->holds.last_used = entry->finished;
  entry->error = error;
  entry->memory.report.Release();
  entry->memory.indices.reset();
  EntryPtr replaced = std::move(entry->replaced);
  Apply(entry, stays ? StageEvent::kFailed : StageEvent::kEnded);
  if (is_told) {
    ++(is_cancelled ? totals_.num_cancelled : totals_.num_failed);
    observer_(DatasetEvent::kFailed, DescribeBriefly(*entry), entry->owner);
  }
  if (!stays) {
    entry->memory.texts.Release();
    if (replaced != nullptr) table_.PutBack(std::move(replaced));
  } else if (entry->kept_for.has_value() &&
             entry->kept_for != entry->owner.uid) {
    // Unload brings it back.
    entry->replaced = std::move(replaced);
  }
  table_.ForgetOldFailures();
  SettleAll(*entry, is_planned ? absl::OkStatus() : error);
}

void DatasetRegistry::EndRestore(DatasetEntry& entry) {
  if (std::exchange(entry.restoring.is_awaited, false)) --num_awaited_;
  if (entry.restoring.is_restored && journal_ != nullptr) {
    journal_->EndRestore(entry.spec->name());
  }
}

absl::Status DatasetRegistry::ReserveIndices(DatasetEntry& entry,
                                             const LoadPlan& plan,
                                             const Placement& placement) {
  const size_t num_replicas =
      placement.is_replicated ? placement.parts.size() : 1;
  // With each index its distinct sizes, which are no larger.
  const int64_t bytes = SaturatingMultiply(
      2 * static_cast<int64_t>(num_replicas), plan.index_bytes);
  entry.memory.indices = std::make_unique<DecodeBudget::Share>(
      sources_.AccountOf(entry.owner.uid).lists, entry.owner.uid);
  return TakeForIndices(entry.spec->name(), bytes, *entry.memory.indices);
}

absl::Status DatasetRegistry::TakeForIndices(const std::string& name,
                                             int64_t bytes,
                                             DecodeBudget::Share& share) {
  const auto is_granted = share.TryGrowTo(bytes);
  if (is_granted.ok() && *is_granted) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "dataset '", name,
      "': the places of its samples, which differ in size, take ", bytes,
      " bytes of host memory, and do not fit with the lists of this user's "
      "loads and datasets: unload another one, wait until other loads have "
      "ended, or raise max_sample_memory_mib of the daemon's configuration"));
}

absl::Status DatasetRegistry::ReserveReport(DatasetEntry& entry,
                                            const Dataset& dataset) {
  const size_t bytes =
      dataset.bad_samples().num_text_bytes + NoteBytes(dataset.notes());
  if (texts_ == nullptr || bytes == 0) return absl::OkStatus();
  DATASETD_ASSIGN_OR_RETURN(
      entry.memory.report,
      texts_->Reserve(MemoryKind::kText, entry.owner.uid, bytes,
                      absl::StrCat("the bad samples and notes of dataset '",
                                   entry.spec->name(), "'"),
                      TermsOf(*entry.spec, entry.owner)));
  return absl::OkStatus();
}

absl::Status DatasetRegistry::ReserveTexts(
    DatasetEntry& entry, const std::vector<std::string>& class_names) {
  if (texts_ == nullptr) return absl::OkStatus();
  entry.memory.texts.Release();
  DATASETD_ASSIGN_OR_RETURN(
      entry.memory.texts,
      texts_->Reserve(
          MemoryKind::kText, entry.owner.uid,
          DatasetTextBytes(*entry.spec, class_names),
          absl::StrCat("the texts of dataset '", entry.spec->name(), "'"),
          TermsOf(*entry.spec, entry.owner)));
  return absl::OkStatus();
}

}  // namespace datasetd
