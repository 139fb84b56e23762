// Scans in progress, as shown by ListDatasets. They are cancelled with their
// session, and all at shutdown. Thread-safe; takes no other lock.

#ifndef DATASETD_SERVER_REGISTRY_SCAN_LIST_H_
#define DATASETD_SERVER_REGISTRY_SCAN_LIST_H_

#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/dataset/caller.h"
#include "server/dataset/dataset_info.h"
#include "server/dataset/dataset_spec.h"
#include "server/load/source_scan.h"

namespace datasetd {

class ScanList {
 private:
  struct Item {
    DatasetSpec spec;
    Caller caller;
    std::shared_ptr<SourceScan> scan;
    absl::Duration started;
  };
  using Items = std::list<Item>;

 public:
  // One scan; removed from the list on destruction. Empty when moved from.
  class Listing {
   public:
    Listing(ScanList* list, Items::iterator item) : list_(list), item_(item) {}
    Listing(Listing&& other) noexcept
        : list_(std::exchange(other.list_, nullptr)), item_(other.item_) {}
    Listing& operator=(Listing&&) = delete;
    ~Listing() {
      if (list_ != nullptr) list_->Remove(item_);
    }

   private:
    ScanList* list_;
    Items::iterator item_;
  };

  ScanList() = default;
  ScanList(const ScanList&) = delete;
  ScanList& operator=(const ScanList&) = delete;

  // The list outlives its listings. `now` is monotonic.
  //   UNAVAILABLE  after CancelAll
  absl::StatusOr<Listing> Add(const DatasetSpec& spec, const Caller& caller,
                              std::shared_ptr<SourceScan> scan,
                              absl::Duration now);

  // Ordered by start.
  std::vector<DatasetInfo> Describe(absl::Duration now) const;

  void CancelSession(uint64_t session_id);
  // Cancels all scans; later ones are refused.
  void CancelAll();

 private:
  void Remove(Items::iterator item);

  mutable Mutex mutex_;
  Items items_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_SCAN_LIST_H_
