// How a registry loads again what an earlier daemon had.

#include <memory>
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
namespace {

// A suspect is loaded alone, so that a crash can be blamed on it. After this
// time it is loaded beside others, which may hang.
constexpr absl::Duration kMaxSuspectWait = absl::Minutes(5);

}  // namespace

void DatasetRegistry::Restore(std::vector<RestoredDataset> datasets) {
  std::vector<ScanJob> suspects;
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
    entry->is_restored = true;
    entry->started = clock_->Monotonic();
    entry->last_used = entry->started;
    table_.Add(entry);
    entry->kept_for = dataset.owner.uid;
    ++num_restoring_;
    counters_.num_loads.fetch_add(1, std::memory_order_relaxed);
    if (!dataset.refusal.ok()) {
      FinishLoad(*entry, dataset.refusal);
      continue;
    }
    entry->scan = std::make_shared<SourceScan>();
    ScanJob job = {.entry = entry,
                   .content_hash = std::move(dataset.content_hash)};
    if (dataset.is_suspect) {
      suspects.push_back(std::move(job));
    } else {
      scans_.Add(dataset.owner.uid, std::move(job));
    }
  }
  num_suspects_ = static_cast<int>(suspects.size());
  threads_.emplace_back([this, suspects = std::move(suspects)]() mutable {
    RestoreSuspects(std::move(suspects));
  });
}

void DatasetRegistry::RestoreSuspects(std::vector<ScanJob> suspects) {
  BecomeBackgroundThread("restore");
  const auto is_alone = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_restoring_ == num_suspects_ || is_stopping_;
  };
  for (ScanJob& suspect : suspects) {
    {
      MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(Condition(&is_alone), kMaxSuspectWait);
      if (is_stopping_) return;
      --num_suspects_;
    }
    Scan(std::move(suspect));
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
