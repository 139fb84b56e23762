// How a registry loads again what an earlier daemon had.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/background_thread.h"
#include "base/status_macros.h"
#include "server/cache/cached_source.h"
#include "server/load/load_request.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

void DatasetRegistry::Restore(std::vector<RestoredDataset> datasets) {
  std::vector<Restored> restored;
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
    entry->spec = request.spec;
    entry->owner = dataset.owner;
    entry->is_restored = entry->is_kept = true;
    entry->started = clock_->Monotonic();
    entry->last_used = entry->started;
    table_.Add(entry);
    counters_.num_loads.fetch_add(1, std::memory_order_relaxed);
    if (!dataset.refusal.ok()) {
      FinishLoad(*entry, dataset.refusal);
      continue;
    }
    entry->scan = std::make_shared<SourceScan>();
    restored.push_back({.entry = entry,
                        .content_hash = std::move(dataset.content_hash),
                        .is_suspect = dataset.is_suspect});
  }
  std::stable_partition(
      restored.begin(), restored.end(),
      [](const Restored& dataset) { return !dataset.is_suspect; });
  threads_.emplace_back([this, restored = std::move(restored)]() mutable {
    RunRestore(std::move(restored));
  });
}

void DatasetRegistry::RunRestore(std::vector<Restored> datasets) {
  BecomeBackgroundThread("restore");
  const auto is_alone = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_restoring_ == 0 || is_stopping_;
  };
  for (Restored& restored : datasets) {
    if (restored.is_suspect) {
      MutexLock lock(&mutex_, Condition(&is_alone));
    }
    const std::string name = restored.entry->spec->name();
    if (!BeginRestored(restored) && journal_ != nullptr) {
      journal_->EndRestore(name);
    }
    // Only the table owns the entry now, as in RunLoads.
    restored.entry.reset();
    MutexLock lock(&mutex_);
    if (is_stopping_) return;
  }
}

bool DatasetRegistry::BeginRestored(const Restored& restored) {
  DatasetEntry& entry = *restored.entry;
  if (journal_ != nullptr) journal_->BeginRead(entry.spec->name());
  auto source = OpenAgain(entry, restored.content_hash);
  if (journal_ != nullptr) journal_->EndRead(entry.spec->name());
  MutexLock lock(&mutex_);
  return QueueLoad(restored.entry, source);
}

absl::StatusOr<OpenedSource> DatasetRegistry::OpenAgain(
    const DatasetEntry& entry, const std::string& content_hash) const {
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
