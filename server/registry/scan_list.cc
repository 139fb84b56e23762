#include "server/registry/scan_list.h"

#include <iterator>

namespace datasetd {

absl::StatusOr<ScanList::Listing> ScanList::Add(
    const DatasetSpec& spec, const Caller& caller,
    std::shared_ptr<SourceScan> scan, absl::Duration now) {
  MutexLock lock(&mutex_);
  if (is_stopping_) {
    return absl::UnavailableError("the daemon is shutting down");
  }
  items_.push_back({spec, caller, std::move(scan), now});
  return Listing(this, std::prev(items_.end()));
}

void ScanList::Remove(Items::iterator item) {
  MutexLock lock(&mutex_);
  items_.erase(item);
}

std::vector<DatasetInfo> ScanList::Describe(absl::Duration now) const {
  std::vector<DatasetInfo> infos;
  MutexLock lock(&mutex_);
  for (const Item& item : items_) {
    DatasetInfo& info = infos.emplace_back();
    info.spec = item.spec;
    info.owner = item.caller;
    info.is_scanning = true;
    info.num_entries_scanned =
        item.scan->num_entries.load(std::memory_order_relaxed);
    info.elapsed = now - item.started;
  }
  return infos;
}

void ScanList::CancelSession(uint64_t session_id) {
  MutexLock lock(&mutex_);
  for (const Item& item : items_) {
    if (item.caller.session_id != session_id) continue;
    item.scan->is_cancelled.store(true, std::memory_order_relaxed);
  }
}

void ScanList::CancelAll() {
  MutexLock lock(&mutex_);
  is_stopping_ = true;
  for (const Item& item : items_) {
    item.scan->is_cancelled.store(true, std::memory_order_relaxed);
  }
}

}  // namespace datasetd
