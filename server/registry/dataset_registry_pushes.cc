// How a registry takes a dataset that a client sends.

#include <malloc.h>

#include <algorithm>
#include <atomic>
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

// What a push begins with.
struct DatasetRegistry::BegunPush {
  absl::Status error;
  EntryPtr entry;  // a dataset that it makes; or
  PreparedLoad load;
  std::unique_ptr<PushComparison> comparison;
  // It waits for a load of its name.
  std::atomic<bool> has_rival = false;
};

absl::StatusOr<DatasetInfo> DatasetRegistry::Push(
    v1::DatasetSpec spec, std::unique_ptr<SampleSource> source,
    const Caller& caller, PushCalls calls) {
  DATASETD_ASSIGN_OR_RETURN(LoadRequest request,
                            CheckRequest(std::move(spec), caller));
  DATASETD_ASSIGN_OR_RETURN(
      OpenedSource opened,
      sources_.OpenPush(std::move(request), std::move(source)));
  const std::string name = opened.request.spec->name();
  BegunPush begun;
  const absl::Duration deadline = MonotonicNow() + max_push_wait_;
  const auto is_late = [&] {
    return calls.receive_digests == nullptr && begun.has_rival &&
           MonotonicNow() >= deadline;
  };
  const auto is_given_up = [&] {
    return is_late() || (calls.is_given_up && calls.is_given_up());
  };
  if (!Ask([&] { return BeginPush(opened, caller, calls, begun); },
           is_given_up)) {
    if (!is_late()) return absl::CancelledError("the push was cancelled");
    return absl::AlreadyExistsError(absl::StrCat(
        "dataset '", name,
        "' is being loaded, and its files are not found, or its load has not "
        "ended, after ",
        absl::FormatDuration(max_push_wait_),
        ": choose another name, or push it when that load has ended"));
  }
  DATASETD_RETURN_IF_ERROR(begun.error);
  if (begun.comparison != nullptr) {
    return Compare(*begun.comparison, std::move(opened), caller,
                   calls.receive_digests);
  }
  const EntryPtr entry = std::move(begun.entry);
  auto replicas = Read(*entry, begun.load);
  begun.load = PreparedLoad();
  if (replicas.ok()) {
    owner_.Call([&] {
      entry->dataset.set_spec_id(PushedSpecId(
          name, replicas->front()->content_hash(), entry->owner.uid));
      return true;
    });
    StoreInCache(*entry, replicas->front());
  }
  owner_.Call([&] {
    OnRead(entry, replicas);
    return true;
  });
  absl::StatusOr<DatasetInfo> info;
  Ask([&] {
    if (entry->state == DatasetState::kLoading) return false;
    if (entry->stage == Stage::kReady) {
      info = entry->Describe(clock_->Monotonic());
    } else {
      info = entry->error.ok() ? DatasetTable::Gone() : entry->error;
    }
    return true;
  });
  return info;
}

bool DatasetRegistry::BeginPush(OpenedSource& source, const Caller& caller,
                                const PushCalls& calls, BegunPush& begun) {
  const std::string& name = source.request.spec->name();
  const EntryPtr present = table_.Get(name);
  const auto begin = [&]() -> absl::Status {
    if (present != nullptr && present->stage == Stage::kReady &&
        calls.receive_digests != nullptr && !is_stopping_ &&
        present->visibility().IsSeenBy(caller)) {
      DATASETD_RETURN_IF_ERROR(present->CheckReadable());
      DATASETD_RETURN_IF_ERROR(PushComparison::CheckRequest(*present, source));
      begun.comparison = std::make_unique<PushComparison>(
          *present, caller.session_id, calls.cancel);
      present->content.comparisons.insert(begun.comparison.get());
      return absl::OkStatus();
    }
    if (present != nullptr && !present->IsReplaceable(caller, "")) {
      return DatasetTable::NameTaken(*present, caller);
    }
    return CheckAdmission(name, caller);
  };
  begun.has_rival =
      !is_stopping_ && present != nullptr &&
      present->state == DatasetState::kLoading &&
      present->visibility().IsSeenBy(caller) &&
      (calls.receive_digests != nullptr || !present->is_planned() ||
       present->stage == Stage::kEnding);
  if (begun.has_rival) return false;
  begun.error = begin();
  if (!begun.error.ok() || begun.comparison != nullptr) return true;
  if (memory_.MakeRoom(*source.request.spec, source.placement, source.plan,
                       caller, /*for_restored=*/false)) {
    return false;
  }
  begun.error = Admit(source, caller, calls, begun);
  return true;
}

absl::Status DatasetRegistry::Admit(OpenedSource& source, const Caller& caller,
                                    const PushCalls& calls, BegunPush& begun) {
  const EntryPtr entry = MakeEntry(source.request.spec, caller);
  entry->stage = Stage::kPlanned;
  entry->holds.sessions.insert(caller.session_id);
  entry->work->cancel = calls.cancel;
  entry->work->prepared.source = std::move(source);
  const absl::Status status = Prepare(*entry);
  if (!status.ok()) {
    source = *std::exchange(entry->work->prepared.source, std::nullopt);
    return status;
  }
  table_.Add(entry);
  Apply(entry, StageEvent::kReserved);
  Apply(entry, StageEvent::kReadBegun);
  ++totals_.num_loads;
  observer_(DatasetEvent::kLoading, DescribeBriefly(*entry), caller);
  begun.load = std::exchange(entry->work->prepared, {});
  begun.entry = entry;
  return absl::OkStatus();
}

absl::StatusOr<DatasetInfo> DatasetRegistry::Compare(
    PushComparison& comparison, OpenedSource push, const Caller& caller,
    const DigestReceiver& receive_digests) {
  const std::string name = push.request.spec->name();
  const DecodeAccount account = sources_.AccountOf(caller.uid);
  DecodeBudget::Share index_memory(account.lists, caller.uid);
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
    DatasetLoad load(std::move(push), PlacedMemory(), account);
    return load.Hash(check, comparison.counters());
  };
  const absl::StatusOr<Dataset::Contents> hashed = hash();
  const absl::Status status =
      hashed.ok() ? comparison.CheckSamples(*hashed) : hashed.status();
  return owner_.Call([&]() -> absl::StatusOr<DatasetInfo> {
    const EntryPtr present = table_.GetById(comparison.entry_id());
    if (present != nullptr) present->content.comparisons.erase(&comparison);
    if (comparison.counters().is_cancelled.load(std::memory_order_relaxed)) {
      return absl::CancelledError("the push was cancelled");
    }
    DATASETD_RETURN_IF_ERROR(status);
    // It is READY, else the comparison would have been cancelled.
    present->holds.Add(caller.session_id, clock_->Monotonic());
    present->holds.lasting.insert(caller.session_id);
    return present->Describe(clock_->Monotonic());
  });
}

}  // namespace datasetd
