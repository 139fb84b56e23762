#include "server/registry/dataset_registry.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// A user has this many at a time, and four users have all there are.
constexpr int kMaxScansPerUser = 8;
constexpr int kMaxScans = 4 * kMaxScansPerUser;
constexpr int kMaxLoadsPerUser = 2;
constexpr int kMaxLoads = 4 * kMaxLoadsPerUser;
// After this time without work a worker ends.
constexpr absl::Duration kIdleTime = absl::Seconds(5);
// How often it is asked whether a request is given up.
constexpr absl::Duration kPollPeriod = absl::Milliseconds(100);
constexpr uint32_t kAllPercent = 100;

}  // namespace

DatasetRegistry::DatasetRegistry(Options options, DeviceTable* devices,
                                 SourceOpener open_source, const Clock* clock,
                                 Observer observer)
    : cache_(options.cache),
      texts_(options.texts),
      journal_(options.journal),
      max_suspect_wait_(options.max_suspect_wait),
      max_push_wait_(options.max_push_wait),
      evict_unused_after_(options.evict_unused_after),
      max_unused_percent_(options.max_unused_percent),
      evict_interval_(options.evict_interval),
      sources_(devices, options.cache, options.decode_limits,
               options.transform_limits, std::move(open_source)),
      devices_(devices),
      clock_(clock),
      observer_(std::move(observer)),
      table_(options.max_datasets, options.max_datasets_per_user),
      scans_(kMaxScansPerUser, kMaxScans),
      loads_(kMaxLoadsPerUser, kMaxLoads),
      memory_(
          &owner_, &table_, options.cache,
          [this](const EntryPtr& entry) {
            ++totals_.num_evicted;
            observer_(DatasetEvent::kEvicted, DescribeBriefly(*entry),
                      Caller());
            Apply(entry, StageEvent::kEvicted);
          },
          [this] { GoOn(); }),
      workers_(std::make_unique<WorkerPool>("load", kIdleTime)) {
  if (evict_unused_after_ > absl::ZeroDuration() ||
      max_unused_percent_ < kAllPercent) {
    owner_.PostAfter(evict_interval_, [this] { EvictUnused(); });
  }
}

void DatasetRegistry::CancelLoads() {
  owner_.Call([this] {
    is_stopping_ = true;
    suspects_.clear();
    scans_.Clear();
    loads_.Clear();
    for (const auto& [name, entry] : table_.entries()) {
      entry->work->Stop();
      if (entry->work->cancel) entry->work->cancel();
      EndChecks(*entry);
      SettleAll(*entry, absl::OkStatus());
    }
    for (const auto& call : waiting_calls_) Settle(*call, absl::OkStatus());
    waiting_calls_.clear();
    GoOn();
    return true;
  });
}

DatasetRegistry::~DatasetRegistry() {
  CancelLoads();
  workers_.reset();
  owner_.Call([] { return true; });
  memory_.AwaitFreed();
}

bool DatasetRegistry::Ask(std::function<bool()> attempt,
                          const std::function<bool()>& is_given_up) {
  const auto request = std::make_shared<Request>();
  request->attempt = std::move(attempt);
  owner_.Post([this, request] {
    requests_.push_back(request);
    GoOn();
  });
  while (!request->answered.Await(kPollPeriod)) {
    if (!is_given_up || !is_given_up()) continue;
    // False if it was answered just now.
    return owner_.Call([&] { return requests_.remove(request) == 0; });
  }
  return true;
}

void DatasetRegistry::GoOn() {
  if (will_go_on_) return;
  will_go_on_ = true;
  owner_.Post([this] {
    will_go_on_ = false;
    for (const EntryPtr& entry : Entries()) {
      if (entry->stage == Stage::kPlanned) TryReserve(entry);
    }
    for (const CallPtr& call : std::exchange(waiting_calls_, {})) {
      const absl::Status status = Begin(call);
      if (!status.ok()) Settle(*call, status);
    }
    requests_.remove_if([](const std::shared_ptr<Request>& request) {
      if (!request->attempt()) return false;
      request->answered.Open();
      return true;
    });
    NextSuspects();
  });
}

void DatasetRegistry::Apply(const EntryPtr& entry, StageEvent event) {
  const uint8_t effects = entry->Change(event);
  GoOn();
  if (effects & kForget) table_.Remove(*entry);
  if (effects & kEndChecks) EndChecks(*entry);
  if (effects & kFreeMemory) memory_.Free(entry->TakeMemory());
  if (effects & kStopWork) {
    entry->work->Stop();
    // Of a failed device a push learns at its next block.
    if (event == StageEvent::kCancelled && entry->work->cancel) {
      entry->work->cancel();
    }
  }
  if (effects & kDropWork) DropWork(entry);
}

void DatasetRegistry::EndChecks(DatasetEntry& entry) {
  for (PushComparison* const comparison :
       std::exchange(entry.content.comparisons, {})) {
    comparison->Cancel();
  }
  for (const auto& [uid, check] : std::exchange(entry.checks, {})) {
    EndCheck(check);
  }
}

std::vector<DatasetRegistry::EntryPtr> DatasetRegistry::Entries() const {
  std::vector<EntryPtr> entries;
  for (const auto& [name, entry] : table_.entries()) entries.push_back(entry);
  return entries;
}

absl::Status DatasetRegistry::CheckDevices(const DatasetEntry& entry) const {
  for (const ServedDevice* const device : entry.placement.devices.devices) {
    DATASETD_RETURN_IF_ERROR(devices_->CheckServes(*device));
  }
  return absl::OkStatus();
}

Replicas DatasetRegistry::FailDevice(const ServedDevice& device) {
  return owner_.Call([&] {
    Replicas lost;
    for (const EntryPtr& entry : Entries()) {
      const std::vector<ServedDevice*>& devices =
          entry->placement.devices.devices;
      if (std::find(devices.begin(), devices.end(), &device) == devices.end()) {
        continue;
      }
      if (entry->state == DatasetState::kLoading) {
        // A push ends at its next block, and says why.
        Apply(entry, StageEvent::kDeviceLost);
      }
      if (entry->stage != Stage::kReady || !entry->IsLost()) continue;
      entry->error = devices_->CheckServes(device);
      entry->dataset.clear_content_hash();
      Apply(entry, StageEvent::kDeviceLost);
      entry->memory.report.Release();
      entry->memory.indices.reset();
      observer_(DatasetEvent::kFailed, DescribeBriefly(*entry), Caller());
      std::move(entry->content.replicas.begin(), entry->content.replicas.end(),
                std::back_inserter(lost));
      entry->content.replicas.clear();
    }
    table_.ForgetOldFailures();
    return lost;
  });
}

void DatasetRegistry::MakeRoom(const std::string& device, int64_t bytes) {
  const auto found = devices_->Find(device);
  if (!found.ok()) return;
  Ask([&] {
    return !memory_.MakeRoom(*(*found)->budget, bytes, /*for_restored=*/false);
  });
}

void DatasetRegistry::EvictUnused() {
  if (is_stopping_) return;
  if (evict_unused_after_ > absl::ZeroDuration()) {
    memory_.EvictUnusedSince(clock_->Monotonic() - evict_unused_after_);
  }
  for (const MemoryBudget* const budget : Budgets()) {
    memory_.Trim(*budget, static_cast<int64_t>(MaxUnusedBytes(*budget)));
  }
  ++totals_.num_eviction_rounds;
  owner_.PostAfter(evict_interval_, [this] { EvictUnused(); });
}

std::vector<const MemoryBudget*> DatasetRegistry::Budgets() const {
  std::vector<const MemoryBudget*> budgets;
  for (const ServedDevice& device : devices_->devices()) {
    budgets.push_back(device.budget.get());
  }
  if (devices_->pinned() != nullptr) budgets.push_back(devices_->pinned());
  return budgets;
}

DatasetRegistry::Summary DatasetRegistry::Summarize() const {
  return owner_.Call([&] {
    Summary summary = {.totals = totals_,
                       .num_datasets = table_.entries().size(),
                       .evict_unused_after = evict_unused_after_,
                       .longest_event = owner_.longest_event()};
    for (const MemoryBudget* const budget : Budgets()) {
      summary.unused[budget] = {
          .bytes = static_cast<uint64_t>(
              table_.UnusedBytes(*budget, /*for_restored=*/false)),
          .max_bytes = MaxUnusedBytes(*budget)};
    }
    return summary;
  });
}

uint64_t DatasetRegistry::MaxUnusedBytes(const MemoryBudget& budget) const {
  const uint64_t total = budget.total_bytes();
  return max_unused_percent_ >= kAllPercent
             ? total
             : total / kAllPercent * max_unused_percent_;
}

absl::StatusOr<DatasetInfo> DatasetRegistry::Hold(const std::string& name,
                                                  const Caller& caller,
                                                  bool only_describes) {
  return owner_.Call([&]() -> absl::StatusOr<DatasetInfo> {
    DATASETD_ASSIGN_OR_RETURN(const EntryPtr entry, table_.Find(name, caller));
    const bool is_there = entry->state == DatasetState::kLoading ||
                          entry->state == DatasetState::kReady;
    if (is_there && !only_describes) {
      entry->holds.Add(caller.session_id, clock_->Monotonic());
      entry->holds.lasting.insert(caller.session_id);
    }
    return entry->Describe(clock_->Monotonic());
  });
}

DatasetInfo DatasetRegistry::DescribeBriefly(const DatasetEntry& entry) const {
  return entry.DescribeBriefly(clock_->Monotonic());
}

absl::StatusOr<DatasetInfo> DatasetRegistry::DescribeFor(LoadCall& call) const {
  return owner_.Call([&]() -> absl::StatusOr<DatasetInfo> {
    DATASETD_RETURN_IF_ERROR(call.error);
    if (call.id == 0) {
      DatasetInfo info;
      info.SetRequest(call.request.spec, call.caller);
      info.dataset.set_device(call.placement.devices.Text());
      v1::LoadProgress& progress = *info.dataset.mutable_progress();
      progress.set_is_scanning(true);
      if (call.scan != nullptr) {
        progress.set_num_entries_scanned(
            call.scan->num_entries.load(std::memory_order_relaxed));
      }
      progress.set_elapsed_seconds(
          absl::ToDoubleSeconds(clock_->Monotonic() - call.started));
      return info;
    }
    const EntryPtr entry = table_.GetById(call.id);
    if (entry == nullptr) return DatasetTable::Gone();
    // Progress leaves the texts out.
    if (entry->state == DatasetState::kLoading) return DescribeBriefly(*entry);
    const uint64_t session_id = call.caller.session_id;
    if (entry->stage == Stage::kReady &&
        entry->holds.sessions.contains(session_id)) {
      entry->holds.lasting.insert(session_id);
    }
    return entry->Describe(clock_->Monotonic());
  });
}

std::vector<DatasetInfo> DatasetRegistry::List(const Caller& caller,
                                               const std::string& after,
                                               size_t limit) const {
  return owner_.Call([&] {
    std::vector<DatasetInfo> infos;
    const auto& entries = table_.entries();
    for (auto it = entries.upper_bound(after);
         it != entries.end() && infos.size() < limit; ++it) {
      if (!it->second->visibility().IsSeenBy(caller)) continue;
      infos.push_back(DescribeBriefly(*it->second));
    }
    return infos;
  });
}

absl::StatusOr<DatasetRegistry::Replica> DatasetRegistry::ReplicaOn(
    const DatasetEntry& entry, const std::string& device) const {
  const absl::StatusOr<ServedDevice*> asked = devices_->Find(device);
  std::string there;
  for (const ServedDevice* const served : entry.placement.devices.devices) {
    const bool is_asked_for = asked.ok() && *asked == served;
    if (!device.empty() && is_asked_for) {
      DATASETD_RETURN_IF_ERROR(devices_->CheckServes(*served));
    }
    if (served->health->has_failed()) continue;
    absl::StrAppend(&there, there.empty() ? "" : ", ", served->Description());
    if (!device.empty() && !is_asked_for) continue;
    for (const auto& replica : entry.content.replicas) {
      const std::vector<Backend*>& backends = replica->backends();
      const auto found =
          std::find(backends.begin(), backends.end(), served->backend.get());
      if (found != backends.end()) return Replica{replica, *found};
    }
  }
  // It is just about to become FAILED.
  if (there.empty()) return CheckDevices(entry);
  return absl::InvalidArgumentError(absl::StrCat(
      "device: dataset '", entry.spec->name(), "' is not on ",
      asked.ok() ? (*asked)->Description() : device, "; it is on ", there,
      ". Take one of these, or load it under another name with device=each"));
}

absl::StatusOr<DatasetUse> DatasetRegistry::Use(const std::string& name,
                                                const Caller& caller,
                                                const std::string& device) {
  return owner_.Call([&]() -> absl::StatusOr<DatasetUse> {
    DATASETD_ASSIGN_OR_RETURN(const EntryPtr found, table_.Find(name, caller));
    DatasetEntry& entry = *found;
    switch (entry.state) {
      case DatasetState::kReady:
        DATASETD_RETURN_IF_ERROR(entry.CheckReadable());
        break;
      case DatasetState::kLoading:
        return absl::FailedPreconditionError(
            absl::StrCat("dataset '", name,
                         "' is still loading; wait until it is ready, as "
                         "get_dataset() does"));
      case DatasetState::kUnloading:
        return absl::FailedPreconditionError(
            absl::StrCat("dataset '", name, "' is being unloaded"));
      case DatasetState::kFailed:
        return absl::FailedPreconditionError(absl::StrCat(
            "dataset '", name, "' is not there: ", entry.error.message(),
            "; load it again"));
    }
    DATASETD_ASSIGN_OR_RETURN(Replica replica, ReplicaOn(entry, device));
    entry.holds.was_used = true;
    ++entry.holds.feeds[caller.uid];
    entry.holds.last_used = clock_->Monotonic();
    return DatasetUse(this, entry.id, caller.uid, entry.visibility(),
                      std::move(replica.dataset), replica.backend,
                      entry.content.classes, entry.content.is_ready);
  });
}

void DatasetRegistry::EndUse(uint64_t entry_id, uint32_t uid) {
  const bool is_freed = owner_.Call([&] {
    const EntryPtr entry = table_.GetById(entry_id);
    if (entry == nullptr) return false;
    Holds& holds = entry->holds;
    if (--holds.feeds[uid] == 0) holds.feeds.erase(uid);
    holds.last_used = clock_->Monotonic();
    if (!holds.feeds.empty()) return false;
    table_.ForgetReplaced(*entry);
    if (entry->stage != Stage::kUnloading) return false;
    observer_(DatasetEvent::kUnloaded, DescribeBriefly(*entry), Caller());
    Apply(entry, StageEvent::kFeedsEnded);
    return true;
  });
  if (is_freed) memory_.AwaitFreed();
}

absl::StatusOr<Replicas> DatasetRegistry::Unload(const std::string& name,
                                                 bool force,
                                                 const Caller& caller,
                                                 const std::string& spec_id) {
  auto replicas = owner_.Call([&]() -> absl::StatusOr<Replicas> {
    DATASETD_ASSIGN_OR_RETURN(const EntryPtr found, table_.Find(name, caller));
    DatasetEntry& entry = *found;
    if (!spec_id.empty() && spec_id != entry.dataset.spec_id()) {
      return absl::NotFoundError(absl::StrCat("dataset '", name,
                                              "' is another one by now, which "
                                              "stays: look at it again"));
    }
    const bool has_feeds = !entry.holds.feeds.empty();
    if (force && !caller.is_privileged) {
      for (const auto& [uid, num_feeds] : entry.holds.feeds) {
        if (uid == caller.uid) continue;
        return absl::PermissionDeniedError(absl::StrCat(
            "dataset '", name, "' has open feeds of user ", uid,
            "; only that user, root or the daemon's user can end them"));
      }
    }
    const bool is_for_caller =
        caller.is_privileged ||
        (entry.state == DatasetState::kFailed && entry.kept_for == caller.uid);
    if (!is_for_caller && caller.uid != entry.owner.uid) {
      return absl::PermissionDeniedError(absl::StrCat(
          "dataset '", name, "' was loaded by uid ", entry.owner.uid,
          "; only that user, root and the daemon's user may unload it"));
    }
    if (has_feeds && !force) {
      return absl::FailedPreconditionError(absl::StrCat(
          "dataset '", name, "' has ", entry.holds.CountFeeds(),
          " open feeds; close them, or force the unload, which ends them"));
    }
    observer_(DatasetEvent::kUnloadAsked, DescribeBriefly(entry), caller);
    if (entry.state == DatasetState::kLoading) {
      entry.holds.Clear();
      // The next daemon does not load it: neither does the name stay kept, nor
      // does the failure come back that it replaced.
      if (entry.kept_for == entry.owner.uid) {
        entry.kept_for.reset();
        entry.replaced = nullptr;
      }
      Apply(found, StageEvent::kCancelled);
      return Replicas();
    }
    if (has_feeds) {
      entry.holds.Clear();
      Apply(found, StageEvent::kForced);
      return entry.content.replicas;
    }
    observer_(DatasetEvent::kUnloaded, DescribeBriefly(entry), caller);
    EntryPtr kept = std::move(entry.replaced);
    Apply(found, StageEvent::kUnloaded);
    if (kept != nullptr && is_for_caller) {
      observer_(DatasetEvent::kUnloadAsked, DescribeBriefly(*kept), caller);
    } else if (kept != nullptr) {
      table_.PutBack(std::move(kept));
    }
    return Replicas();
  });
  if (replicas.ok()) memory_.AwaitFreed();
  return replicas;
}

void DatasetRegistry::DropHold(const EntryPtr& entry, uint64_t session_id) {
  Holds& holds = entry->holds;
  if (holds.sessions.erase(session_id) == 0) return;
  holds.lasting.erase(session_id);
  holds.last_used = clock_->Monotonic();
  if (holds.sessions.empty() && entry->state == DatasetState::kLoading &&
      !entry->restoring.is_restored) {
    Apply(entry, StageEvent::kCancelled);
  }
}

absl::Status DatasetRegistry::Release(const std::string& name,
                                      const Caller& caller) {
  return owner_.Call([&]() -> absl::Status {
    DATASETD_ASSIGN_OR_RETURN(const EntryPtr entry, table_.Find(name, caller));
    DropHold(entry, caller.session_id);
    return absl::OkStatus();
  });
}

void DatasetRegistry::ReleaseSession(uint64_t session_id) {
  owner_.Call([&] {
    for (const CallPtr& call : WaitingCalls()) {
      if (call->caller.session_id == session_id) CancelWaiting(call);
    }
    for (const EntryPtr& entry : Entries()) {
      DropHold(entry, session_id);
      // It may come back.
      if (entry->replaced != nullptr) DropHold(entry->replaced, session_id);
      for (PushComparison* const comparison : entry->content.comparisons) {
        if (comparison->session_id() == session_id) comparison->Cancel();
      }
    }
    return true;
  });
}

}  // namespace datasetd
