// How a registry loads a dataset whose files are known: RunLoads reads its
// samples, FinishLoad makes it READY or FAILED.

#include <malloc.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/background_thread.h"
#include "base/status_macros.h"
#include "server/dataset/load_cancelled.h"
#include "server/load/replicate.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {
namespace {

bool IsPush(const DatasetEntry& entry) {
  return entry.spec->format() == kPushedFormat;
}

}  // namespace

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
    auto replicas = RunLoad(*entry);
    if (replicas.ok()) StoreInCache(*entry, replicas->front());
    (void)EndLoad(std::move(entry), std::move(replicas), /*had_turn=*/true);
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
    if (entry->is_restored && journal_ != nullptr) {
      journal_->EndRestore(entry->spec->name());
    }
    (void)EndLoad(std::move(entry), LoadCancelled(), /*had_turn=*/false);
  }
}

absl::StatusOr<Replicas> DatasetRegistry::RunLoad(DatasetEntry& entry) {
  // Each thread's heap keeps what the load has used.
  const absl::Cleanup trim = [] { malloc_trim(0); };
  const auto reserve =
      [&](const LoadPlan& plan) -> absl::StatusOr<PlacedMemory> {
    MutexLock lock(&mutex_);
    entry.replica_reservations.clear();
    while (memory_.MakeRoom(*entry.spec, entry.placement, plan, entry.owner,
                            entry.is_restored)) {
    }
    DATASETD_ASSIGN_OR_RETURN(
        PlacedMemory reserved,
        memory_.Reserve(*entry.spec, entry.placement, plan, entry.owner));
    DATASETD_RETURN_IF_ERROR(ReserveIndices(entry, plan, reserved.placement));
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
  CacheHeader header = {.spec_id = entry.dataset.spec_id(),
                        .stored_by_uid = entry.owner.uid,
                        .class_names = entry.classes};
  if (IsPush(entry)) header.owner_uid = entry.owner.uid;
  cache_->Store(std::move(header), dataset);
}

absl::Status DatasetRegistry::EndLoad(EntryPtr entry,
                                      absl::StatusOr<Replicas> replicas,
                                      bool had_turn) {
  const bool is_push = IsPush(*entry) && !entry->is_restored;
  entry->load.reset();
  entry->replica_reservations.clear();
  while (true) {
    absl::Status status = replicas.status();
    if (entry->is_cancelled() && (status.ok() || is_push)) {
      status = is_push ? absl::CancelledError("the push was cancelled")
                       : LoadCancelled();
    }
    // Whatever it met: that is why.
    if (const absl::Status failure = CheckDevices(*entry); !failure.ok()) {
      status = failure;
    }
    if (status.ok()) status = ReserveReport(*entry, *replicas->front());
    if (!status.ok()) {
      const bool are_made = replicas.ok();
      replicas = status;
      if (are_made && cache_ != nullptr) cache_->AwaitReleased();
    }
    MutexLock lock(&mutex_);
    // Just now.
    if (replicas.ok() &&
        (entry->is_cancelled() || !CheckDevices(*entry).ok())) {
      continue;
    }
    if (had_turn) loads_.Finish(entry->owner.uid);
    entry->cancel = nullptr;
    FinishLoad(*entry, std::move(replicas));
    absl::Status error = entry->error;
    // Before anybody is told: the entry's memory is the table's alone.
    entry.reset();
    return error;
  }
}

void DatasetRegistry::FinishLoad(DatasetEntry& entry,
                                 absl::StatusOr<Replicas> replicas) {
  if (entry.is_awaited) --num_awaited_;
  entry.is_awaited = false;
  entry.finished = clock_->Monotonic();
  entry.last_used = entry.finished;
  EntryPtr replaced = std::move(entry.replaced);
  if (replicas.ok()) {
    entry.SetReplicas(*std::move(replicas));
    entry.state = DatasetState::kReady;
    entry.kept_for = entry.owner.uid;
    counters_.num_ready.fetch_add(1, std::memory_order_relaxed);
    counters_.loaded_bytes.fetch_add(
        static_cast<uint64_t>(entry.dataset.resident_bytes()),
        std::memory_order_relaxed);
    observer_(DatasetEvent::kReady, DescribeBriefly(entry), entry.owner);
    return;
  }
  entry.state = DatasetState::kFailed;
  entry.error = replicas.status();
  entry.report_reservation.Release();
  entry.index_memory.reset();
  const bool is_cancelled = absl::IsCancelled(entry.error);
  (is_cancelled ? counters_.num_cancelled : counters_.num_failed)
      .fetch_add(1, std::memory_order_relaxed);
  observer_(DatasetEvent::kFailed, DescribeBriefly(entry), entry.owner);
  if (is_cancelled || (IsPush(entry) && !entry.is_restored)) {
    table_.Remove(entry);
    if (replaced != nullptr) table_.PutBack(std::move(replaced));
  } else if (entry.kept_for.has_value() && entry.kept_for != entry.owner.uid) {
    // Unload brings it back.
    entry.replaced = std::move(replaced);
  }
  table_.ForgetOldFailures();
}

absl::Status DatasetRegistry::ReserveIndices(DatasetEntry& entry,
                                             const LoadPlan& plan,
                                             const Placement& placement) {
  const size_t num_replicas =
      placement.is_replicated ? placement.parts.size() : 1;
  // With each index its distinct sizes, which are no larger.
  const int64_t bytes = SaturatingMultiply(
      2 * static_cast<int64_t>(num_replicas), plan.index_bytes);
  entry.index_memory =
      std::make_unique<DecodeBudget::Share>(&list_budget_, entry.owner.uid);
  return TakeForIndices(entry.spec->name(), bytes, *entry.index_memory);
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
      entry.report_reservation,
      texts_->Reserve(MemoryKind::kText, entry.owner.uid, bytes,
                      absl::StrCat("the bad samples and notes of dataset '",
                                   entry.spec->name(), "'"),
                      TermsOf(*entry.spec, entry.owner)));
  return absl::OkStatus();
}

}  // namespace datasetd
