#include "server/registry/dataset_registry.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/background_thread.h"
#include "base/checked_math.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// A user has this many at a time; the threads are enough for four users.
constexpr int kMaxScansPerUser = 8;
constexpr int kNumScanThreads = 4 * kMaxScansPerUser;
constexpr int kMaxLoadsPerUser = 2;
constexpr int kNumLoadThreads = 4 * kMaxLoadsPerUser;
constexpr uint32_t kAllPercent = 100;

// For the buffers of loads: two of the largest, and one of one user's.
DecodeBudget::Limits StagingLimits(const DecodeBudget::Limits& limits) {
  const int64_t most = MaxLoadBufferBytes(limits.sample_bytes);
  return {.sample_bytes = most, .total_bytes = SaturatingMultiply(2, most)};
}

// For the lists of samples and files that sources keep, and for the indices of
// datasets; one user has half.
DecodeBudget::Limits ListLimits(const DecodeBudget::Limits& limits) {
  const int64_t most = SaturatingMultiply(4, limits.sample_bytes);
  return {.sample_bytes = most, .total_bytes = SaturatingMultiply(2, most)};
}

absl::Status Gone() {
  return absl::NotFoundError(
      "the dataset was unloaded, or its load was cancelled, meanwhile");
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
      max_suspect_wait_(options.max_suspect_wait),
      max_push_wait_(options.max_push_wait),
      evict_unused_after_(options.evict_unused_after),
      max_unused_percent_(options.max_unused_percent),
      evict_interval_(options.evict_interval),
      decode_budget_(options.decode_limits),
      staging_budget_(StagingLimits(options.decode_limits)),
      list_budget_(ListLimits(options.decode_limits)),
      sources_(devices, options.cache, &decode_budget_, &list_budget_,
               options.transform_limits, std::move(open_source)),
      devices_(devices),
      clock_(clock),
      observer_(std::move(observer)),
      table_(options.max_datasets, options.max_datasets_per_user),
      memory_(&mutex_, &table_, options.cache,
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
  threads_.emplace_back([this] { EndCancelledLoads(); });
  if (evict_unused_after_ > absl::ZeroDuration() ||
      max_unused_percent_ < kAllPercent) {
    threads_.emplace_back([this] { RunEvictions(); });
  }
}

void DatasetRegistry::CancelLoads() {
  MutexLock lock(&mutex_);
  is_stopping_ = true;
  suspects_.clear();
  scans_.Clear();
  loads_.Clear();
  for (const auto& [name, entry] : table_.entries()) {
    entry->Cancel();
    entry->CancelComparisons();
  }
  for (const auto& call : joining_) call->scan->Cancel();
}

DatasetRegistry::~DatasetRegistry() {
  CancelLoads();
  for (std::thread& thread : threads_) thread.join();
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
    entry->dataset.clear_content_hash();
    entry->CancelComparisons();
    entry->report_reservation.Release();
    entry->index_memory.reset();
    observer_(DatasetEvent::kFailed, DescribeBriefly(*entry), Caller());
    std::move(entry->replicas.begin(), entry->replicas.end(),
              std::back_inserter(lost));
    entry->replicas.clear();
  }
  table_.ForgetOldFailures();
  return lost;
}

void DatasetRegistry::MakeRoom(const std::string& device, int64_t bytes) {
  const auto found = devices_->Find(device);
  if (!found.ok()) return;
  MutexLock lock(&mutex_);
  while (memory_.MakeRoom(*(*found)->budget, bytes, /*for_restored=*/false)) {
  }
}

void DatasetRegistry::RunEvictions() {
  BecomeBackgroundThread("evict");
  while (true) {
    {
      MutexLock lock(&mutex_);
      const auto is_stopping = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return is_stopping_;
      };
      if (mutex_.AwaitWithTimeout(Condition(&is_stopping), evict_interval_)) {
        return;
      }
    }
    EvictUnused();
  }
}

void DatasetRegistry::EvictUnused() {
  std::vector<const MemoryBudget*> budgets;
  for (const ServedDevice& device : devices_->devices()) {
    budgets.push_back(device.budget.get());
  }
  if (devices_->pinned() != nullptr) budgets.push_back(devices_->pinned());
  MutexLock lock(&mutex_);
  if (evict_unused_after_ > absl::ZeroDuration()) {
    memory_.EvictUnusedSince(clock_->Monotonic() - evict_unused_after_);
  }
  for (const MemoryBudget* const budget : budgets) {
    memory_.Trim(*budget, static_cast<int64_t>(MaxUnusedBytes(*budget)));
  }
}

uint64_t DatasetRegistry::UnusedBytes(const MemoryBudget& budget) const {
  MutexLock lock(&mutex_);
  return static_cast<uint64_t>(
      table_.UnusedBytes(budget, /*for_restored=*/false));
}

uint64_t DatasetRegistry::MaxUnusedBytes(const MemoryBudget& budget) const {
  const uint64_t total = budget.total_bytes();
  return max_unused_percent_ >= kAllPercent
             ? total
             : total / kAllPercent * max_unused_percent_;
}

bool DatasetRegistry::IsThere(const std::string& name,
                              const Caller& caller) const {
  MutexLock lock(&mutex_);
  const auto found = table_.Find(name, caller);
  return found.ok() && ((*found)->state == DatasetState::kLoading ||
                        (*found)->state == DatasetState::kReady);
}

absl::StatusOr<DatasetInfo> DatasetRegistry::Hold(const std::string& name,
                                                  const Caller& caller) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(const EntryPtr found, table_.Find(name, caller));
  DatasetEntry& entry = *found;
  if (entry.state == DatasetState::kLoading ||
      entry.state == DatasetState::kReady) {
    HoldEntry(entry, caller);
  }
  return entry.Describe(clock_->Monotonic());
}

void DatasetRegistry::HoldEntry(DatasetEntry& entry, const Caller& caller) {
  entry.holders.insert(caller.session_id);
  entry.was_used = true;
  entry.getters.insert(caller.session_id);
  entry.last_used = clock_->Monotonic();
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

absl::StatusOr<DatasetInfo> DatasetRegistry::Await(const LoadCall& call,
                                                   absl::Duration timeout) {
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
    info.SetRequest(call.request.spec, call.caller);
    info.dataset.set_device(call.placement.devices.Text());
    v1::LoadProgress& progress = *info.dataset.mutable_progress();
    progress.set_is_scanning(true);
    progress.set_num_entries_scanned(
        call.scan->num_entries.load(std::memory_order_relaxed));
    progress.set_elapsed_seconds(
        absl::ToDoubleSeconds(clock_->Monotonic() - call.started));
    return info;
  }
  const EntryPtr entry = table_.GetById(call.id);
  if (entry == nullptr) return Gone();
  const uint64_t session_id = call.caller.session_id;
  if (entry->state == DatasetState::kReady &&
      entry->holders.contains(session_id)) {
    entry->getters.insert(session_id);
  }
  return DescribeAwaited(*entry);
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
  return DescribeAwaited(*entry);
}

// Progress leaves the texts out.
DatasetInfo DatasetRegistry::DescribeAwaited(const DatasetEntry& entry) const {
  return entry.state == DatasetState::kLoading
             ? DescribeBriefly(entry)
             : entry.Describe(clock_->Monotonic());
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
    const bool is_asked_for = asked.ok() && *asked == served;
    if (!device.empty() && is_asked_for) {
      DATASETD_RETURN_IF_ERROR(devices_->CheckServes(*served));
    }
    if (served->health->has_failed()) continue;
    absl::StrAppend(&there, there.empty() ? "" : ", ", served->Description());
    if (!device.empty() && !is_asked_for) continue;
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
      "device: dataset '", entry.spec->name(), "' is not on ",
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
  entry.was_used = true;
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
  if (entry->num_feeds_of.empty()) table_.ForgetReplaced(*entry);
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
                                                 const Caller& caller,
                                                 const std::string& spec_id) {
  MutexLock lock(&mutex_);
  DATASETD_ASSIGN_OR_RETURN(EntryPtr found, table_.Find(name, caller));
  DatasetEntry& entry = *found;
  if (!spec_id.empty() && spec_id != entry.dataset.spec_id()) {
    return absl::NotFoundError(absl::StrCat("dataset '", name,
                                            "' is another one by now, which "
                                            "stays: look at it again"));
  }
  if (force && !caller.is_privileged) {
    for (const auto& [uid, num_feeds] : entry.num_feeds_of) {
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
  if (!entry.num_feeds_of.empty() && !force) {
    return absl::FailedPreconditionError(absl::StrCat(
        "dataset '", name, "' has ", entry.CountFeeds(),
        " open feeds; close them, or force the unload, which ends them"));
  }
  observer_(DatasetEvent::kUnloadAsked, DescribeBriefly(entry), caller);
  if (entry.state == DatasetState::kLoading) {
    entry.Cancel();
    entry.ClearHolders();
    // The next daemon does not load it: neither does the name stay kept, nor
    // does the failure come back that it replaced.
    if (entry.kept_for == entry.owner.uid) {
      entry.kept_for.reset();
      entry.replaced = nullptr;
    }
    EndWaitingScan(found);
    return Replicas();
  }
  entry.CancelComparisons();
  if (!entry.num_feeds_of.empty()) {
    entry.state = DatasetState::kUnloading;
    entry.ClearHolders();
    return entry.replicas;
  }
  observer_(DatasetEvent::kUnloaded, DescribeBriefly(entry), caller);
  table_.Remove(entry);
  if (EntryPtr kept = std::move(entry.replaced); kept != nullptr) {
    if (is_for_caller) {
      observer_(DatasetEvent::kUnloadAsked, DescribeBriefly(*kept), caller);
    } else {
      table_.PutBack(std::move(kept));
    }
  }
  memory_.Free(Only(std::move(found)));
  return Replicas();
}

void DatasetRegistry::DropHold(DatasetEntry& entry, uint64_t session_id) {
  if (entry.holders.erase(session_id) == 0) return;
  entry.getters.erase(session_id);
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
    for (PushComparison* const comparison : entry->comparisons) {
      if (comparison->session_id() == session_id) comparison->Cancel();
    }
  }
}

}  // namespace datasetd
