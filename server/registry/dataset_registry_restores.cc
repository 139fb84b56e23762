// How a registry loads again what an earlier daemon had.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/background_thread.h"
#include "base/status_macros.h"
#include "server/cache/cached_source.h"
#include "server/load/load_request.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

void DatasetRegistry::Restore(std::vector<RestoredDataset> datasets) {
  MutexLock lock(&mutex_);
  for (RestoredDataset& dataset : datasets) {
    if (table_.Get(dataset.spec.name()) != nullptr) continue;
    const auto entry = std::make_shared<DatasetEntry>();
    // If the device is not there, opening it says so.
    const auto placement = sources_.FindPlacement(dataset.spec);
    const LoadRequest request = CheckRequest(std::move(dataset.spec)).value();
    entry->request_id = SpecId(
        request,
        placement.ok() ? placement->devices.Text() : request.spec->device(),
        SourceInfo());
    entry->SetRequest(request.spec, dataset.owner);
    entry->is_restored = true;
    entry->started = clock_->Monotonic();
    entry->last_used = entry->started;
    table_.Add(entry);
    entry->kept_for = dataset.owner.uid;
    counters_.num_loads.fetch_add(1, std::memory_order_relaxed);
    if (!dataset.refusal.ok()) {
      FinishLoad(*entry, dataset.refusal);
      continue;
    }
    entry->scan = std::make_shared<SourceScan>();
    ScanJob job = {.entry = entry,
                   .content_hash = std::move(dataset.content_hash)};
    if (dataset.is_suspect) {
      suspects_.push_back(std::move(job));
    } else {
      entry->is_awaited = true;
      ++num_awaited_;
      scans_.Add(dataset.owner.uid, std::move(job));
    }
  }
  threads_.emplace_back([this] { RestoreSuspects(); });
}

void DatasetRegistry::RestoreSuspects() {
  BecomeBackgroundThread("restore");
  const auto may_go_on = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_awaited_ == 0 || suspects_.empty() || is_stopping_;
  };
  std::set<uint32_t> slow_uids;
  MutexLock lock(&mutex_);
  while (!suspects_.empty()) {
    if (!slow_uids.contains(suspects_.front().entry->owner.uid) &&
        !mutex_.AwaitWithTimeout(Condition(&may_go_on), max_suspect_wait_)) {
      for (const auto& [name, entry] : table_.entries()) {
        if (!entry->is_awaited) continue;
        entry->is_awaited = false;
        slow_uids.insert(entry->owner.uid);
      }
      num_awaited_ = 0;
    }
    if (suspects_.empty() || is_stopping_) return;
    ScanJob suspect = std::move(suspects_.front());
    suspects_.pop_front();
    const uint32_t uid = suspect.entry->owner.uid;
    if (!slow_uids.contains(uid)) {
      suspect.entry->is_awaited = true;
      ++num_awaited_;
    }
    scans_.Add(uid, std::move(suspect));
  }
}

absl::StatusOr<OpenedSource> DatasetRegistry::OpenAgain(
    const DatasetEntry& entry, const std::string& content_hash) const {
  const std::string& name = entry.spec->name();
  if (journal_ != nullptr) journal_->BeginRead(name);
  const absl::Cleanup end_read = [&] {
    if (journal_ != nullptr) journal_->EndRead(name);
  };
  DATASETD_ASSIGN_OR_RETURN(LoadRequest request,
                            CheckRequest(*entry.spec, entry.owner));
  if (entry.spec->format() == kPushedFormat) {
    return sources_.OpenPushed(std::move(request), content_hash,
                               entry.owner.uid);
  }
  DATASETD_ASSIGN_OR_RETURN(PlacementRequest placement,
                            sources_.FindPlacement(*entry.spec));
  return sources_.OpenFiles(std::move(request), std::move(placement),
                            entry.owner.uid, entry.scan);
}

}  // namespace datasetd
