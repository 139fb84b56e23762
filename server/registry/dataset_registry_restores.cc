// How a registry loads again what an earlier daemon had.

#include <memory>
#include <utility>
#include <vector>

#include "server/load/load_request.h"
#include "server/registry/dataset_registry.h"

namespace datasetd {

void DatasetRegistry::Restore(std::vector<RestoredDataset> datasets) {
  std::vector<EntryPtr> entries;
  for (RestoredDataset& dataset : datasets) {
    // If the device is not there, opening it says so.
    const auto placement = sources_.FindPlacement(dataset.spec);
    const LoadRequest request = CheckRequest(std::move(dataset.spec)).value();
    const EntryPtr& entry =
        entries.emplace_back(MakeEntry(request.spec, dataset.owner));
    entry->request_id = SpecId(
        request,
        placement.ok() ? placement->devices.Text() : request.spec->device(),
        SourceInfo());
    entry->restoring.is_restored = true;
  }
  owner_.Call([&] {
    for (size_t i = 0; i < entries.size(); ++i) {
      const EntryPtr& entry = entries[i];
      if (table_.Get(entry->spec->name()) != nullptr) continue;
      table_.Add(entry);
      entry->kept_for = entry->owner.uid;
      ++totals_.num_loads;
      if (!datasets[i].refusal.ok()) {
        entry->work->error = datasets[i].refusal;
        Fail(entry);
        continue;
      }
      ScanTask task = {.entry = entry,
                       .spec = entry->spec,
                       .owner = entry->owner,
                       .scan = entry->work->scan,
                       .is_restored = true,
                       .content_hash = std::move(datasets[i].content_hash)};
      if (datasets[i].is_suspect) {
        suspects_.push_back(std::move(task));
      } else {
        AddRestore(std::move(task));
      }
    }
    Dispatch();
    GoOn();
    return true;
  });
}

void DatasetRegistry::AddRestore(ScanTask task) {
  const uint32_t uid = task.owner.uid;
  if (!slow_uids_.contains(uid)) {
    task.entry->restoring.is_awaited = true;
    ++num_awaited_;
  }
  scans_.Add(uid, std::move(task));
}

void DatasetRegistry::NextSuspects() {
  while (!suspects_.empty()) {
    if (num_awaited_ > 0 && !slow_uids_.contains(suspects_.front().owner.uid)) {
      if (std::exchange(has_suspect_timer_, true)) return;
      return owner_.PostAfter(max_suspect_wait_,
                              [this, wait = suspect_wait_] { EndWait(wait); });
    }
    ++suspect_wait_;
    has_suspect_timer_ = false;
    AddRestore(std::move(suspects_.front()));
    suspects_.pop_front();
    Dispatch();
  }
}

void DatasetRegistry::EndWait(uint64_t wait) {
  if (wait != suspect_wait_) return;
  for (const auto& [name, entry] : table_.entries()) {
    if (!std::exchange(entry->restoring.is_awaited, false)) continue;
    slow_uids_.insert(entry->owner.uid);
  }
  num_awaited_ = 0;
  NextSuspects();
}

}  // namespace datasetd
