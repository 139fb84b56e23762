// How a registry takes a dataset that a client sends.

#include <malloc.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "server/load/dataset_load.h"
#include "server/load/load_request.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {
namespace {

// True if the resident fields are the bytes that the client has.
bool IsStoredAsSent(const LoadPlan& plan) {
  return !plan.has_work() &&
         std::none_of(plan.fields.begin(), plan.fields.end(),
                      [](const LoadPlan::FieldPlan& field) {
                        return field.resident.is_packed();
                      });
}

absl::StatusOr<Dataset::Contents> FromDigests(
    const LoadPlan& plan, const std::vector<Digest>& digests) {
  if (digests.size() != plan.fields.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "digests: there are ", digests.size(), ", expected one of ",
        "each of the ", plan.fields.size(), " fields"));
  }
  Dataset::Contents contents;
  contents.num_samples = plan.num_samples;
  contents.content_hash = ContentHash(plan, plan.num_samples, digests);
  return contents;
}

}  // namespace

absl::StatusOr<uint64_t> DatasetRegistry::Push(
    v1::DatasetSpec spec, std::unique_ptr<SampleSource> source,
    const Caller& caller, std::function<void()> cancel,
    DigestReceiver receive_digests) {
  DATASETD_ASSIGN_OR_RETURN(LoadRequest request,
                            CheckRequest(std::move(spec), caller));
  DATASETD_ASSIGN_OR_RETURN(
      OpenedSource opened,
      sources_.OpenPush(std::move(request), std::move(source)));
  const std::string& name = opened.request.spec->name();
  EntryPtr entry;
  std::unique_ptr<PushComparison> comparison;
  {
    MutexLock lock(&mutex_);
    do {
      if (receive_digests != nullptr) {
        DATASETD_ASSIGN_OR_RETURN(comparison,
                                  BeginComparison(opened, caller, cancel));
        if (comparison != nullptr) break;
      }
      DATASETD_RETURN_IF_ERROR(AwaitPlanned(name, caller));
      const EntryPtr present = table_.Get(name);
      if (present != nullptr && !present->IsReplaceable(caller, "")) {
        return DatasetTable::NameTaken(*present, caller);
      }
      DATASETD_RETURN_IF_ERROR(CheckAdmission(name, caller));
    } while (memory_.MakeRoom(*opened.request.spec, opened.placement,
                              opened.plan, caller, /*for_restored=*/false));
    if (comparison == nullptr) {
      DATASETD_ASSIGN_OR_RETURN(entry, Admit(std::move(opened), caller));
      entry->cancel = std::move(cancel);
    }
  }
  if (comparison != nullptr) {
    return Compare(*comparison, std::move(opened), caller, receive_digests);
  }
  auto replicas = RunLoad(*entry);
  if (replicas.ok()) {
    {
      MutexLock lock(&mutex_);
      entry->dataset.set_spec_id(PushedSpecId(entry->spec->name(),
                                              replicas->front()->content_hash(),
                                              entry->owner.uid));
    }
    StoreInCache(*entry, replicas->front());
  }
  const uint64_t id = entry->id;
  DATASETD_RETURN_IF_ERROR(EndLoad(std::move(entry), std::move(replicas),
                                   /*had_turn=*/false));
  return id;
}

absl::StatusOr<std::unique_ptr<PushComparison>>
DatasetRegistry::BeginComparison(const OpenedSource& push, const Caller& caller,
                                 const std::function<void()>& cancel) {
  const std::string& name = push.request.spec->name();
  const EntryPtr present = table_.Get(name);
  if (present == nullptr || !present->visibility().IsSeenBy(caller)) {
    return nullptr;
  }
  if (present->state == DatasetState::kLoading) {
    return absl::AbortedError(absl::StrCat(
        "dataset '", name, "' is being loaded; try again when it is ready"));
  }
  if (is_stopping_ || present->state != DatasetState::kReady) return nullptr;
  DATASETD_RETURN_IF_ERROR(present->CheckReadable());
  DATASETD_RETURN_IF_ERROR(PushComparison::CheckRequest(*present, push));
  auto comparison =
      std::make_unique<PushComparison>(*present, caller.session_id, cancel);
  present->comparisons.insert(comparison.get());
  return comparison;
}

absl::StatusOr<uint64_t> DatasetRegistry::Compare(
    PushComparison& comparison, OpenedSource push, const Caller& caller,
    const DigestReceiver& receive_digests) {
  const std::string name = push.request.spec->name();
  DecodeBudget::Share index_memory(&list_budget_, caller.uid);
  const auto check = [&](const LoadPlan& plan) -> absl::Status {
    DATASETD_RETURN_IF_ERROR(comparison.CheckPlan(plan));
    return TakeForIndices(name, plan.index_bytes, index_memory);
  };
  const auto hash = [&]() -> absl::StatusOr<Dataset::Contents> {
    DATASETD_RETURN_IF_ERROR(check(push.plan));
    if (IsStoredAsSent(push.plan)) {
      DATASETD_ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                                receive_digests());
      if (!digests.empty()) return FromDigests(push.plan, digests);
    }
    // Each thread's heap keeps what the load has used.
    const absl::Cleanup trim = [] { malloc_trim(0); };
    DatasetLoad load(std::move(push), PlacedMemory(), AccountOf(caller.uid));
    return load.Hash(check, comparison.counters());
  };
  const absl::StatusOr<Dataset::Contents> hashed = hash();
  const absl::Status status =
      hashed.ok() ? comparison.CheckSamples(*hashed) : hashed.status();
  MutexLock lock(&mutex_);
  const EntryPtr present = table_.GetById(comparison.entry_id());
  if (present != nullptr) present->comparisons.erase(&comparison);
  if (comparison.counters().is_cancelled.load(std::memory_order_relaxed)) {
    return absl::CancelledError("the push was cancelled");
  }
  DATASETD_RETURN_IF_ERROR(status);
  // It is READY, else the comparison would have been cancelled.
  HoldEntry(*present, caller);
  return present->id;
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
  entry->SetRequest(source.request.spec, caller);
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
