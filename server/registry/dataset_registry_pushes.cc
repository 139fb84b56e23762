// How a registry takes a dataset that a client sends.

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/load/load_request.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

absl::StatusOr<uint64_t> DatasetRegistry::Push(
    v1::DatasetSpec spec, std::unique_ptr<SampleSource> source,
    const Caller& caller, std::function<void()> cancel) {
  DATASETD_ASSIGN_OR_RETURN(LoadRequest request,
                            CheckRequest(std::move(spec), caller));
  DATASETD_ASSIGN_OR_RETURN(
      OpenedSource opened,
      sources_.OpenPush(std::move(request), std::move(source)));
  const std::string& name = opened.request.spec->name();
  EntryPtr entry;
  {
    MutexLock lock(&mutex_);
    do {
      DATASETD_RETURN_IF_ERROR(AwaitPlanned(name, caller));
      const EntryPtr present = table_.Get(name);
      if (present != nullptr && !present->IsReplaceable(caller, "")) {
        return DatasetTable::NameTaken(*present, caller);
      }
      DATASETD_RETURN_IF_ERROR(CheckAdmission(name, caller));
    } while (memory_.MakeRoom(*opened.request.spec, opened.placement,
                              opened.plan, caller, /*for_restored=*/false));
    DATASETD_ASSIGN_OR_RETURN(entry, Admit(std::move(opened), caller));
    entry->cancel = std::move(cancel);
  }
  auto replicas = RunLoad(*entry);
  if (replicas.ok()) {
    {
      MutexLock lock(&mutex_);
      entry->spec_id =
          PushedSpecId(entry->spec->name(), replicas->front()->content_hash(),
                       entry->owner.uid);
    }
    StoreInCache(*entry, replicas->front());
  }
  const uint64_t id = entry->id;
  DATASETD_RETURN_IF_ERROR(EndLoad(std::move(entry), std::move(replicas),
                                   /*had_turn=*/false));
  return id;
}

absl::Status DatasetRegistry::AwaitPlanned(const std::string& name,
                                           const Caller& caller) {
  const EntryPtr entry = table_.Get(name);
  if (entry == nullptr || !entry->visibility().IsSeenBy(caller)) {
    return absl::OkStatus();
  }
  const auto may_go_on = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    if (is_stopping_ || entry->state != DatasetState::kLoading) return true;
    if (entry->is_cancelled()) return table_.Get(name) != entry;
    return entry->is_planned;
  };
  if (mutex_.AwaitWithTimeout(Condition(&may_go_on), max_push_wait_)) {
    return absl::OkStatus();
  }
  if (entry->is_cancelled()) return DatasetTable::NameTaken(*entry, caller);
  return absl::AbortedError(
      absl::StrCat("dataset '", name,
                   "' is being loaded, and its files are not found yet; try "
                   "again later"));
}

absl::StatusOr<DatasetRegistry::EntryPtr> DatasetRegistry::Admit(
    OpenedSource source, const Caller& caller) {
  auto entry = std::make_shared<DatasetEntry>();
  entry->spec = source.request.spec;
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

}  // namespace datasetd
