// A client's call for a dataset, until that is loaded.
//
// The owner's thread gives it a dataset and settles it. Until then it waits:
// for another load of the name to end, or to know whether the files of the
// dataset of that name are those that it means.

#ifndef DATASETD_SERVER_REGISTRY_LOAD_CALL_H_
#define DATASETD_SERVER_REGISTRY_LOAD_CALL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/dataset/caller.h"
#include "server/dataset/dataset_info.h"
#include "server/load/load_request.h"
#include "server/load/placement.h"
#include "server/load/source_scan.h"

namespace datasetd {

// Something that happens once. Thread-safe.
class Latch {
 public:
  void Open() {
    MutexLock lock(&mutex_);
    is_open_ = true;
  }
  // Blocks until it is open, or `timeout` passes. Returns whether it is open.
  bool Await(absl::Duration timeout = absl::InfiniteDuration()) {
    MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(Condition(&is_open_), timeout);
  }

 private:
  Mutex mutex_;
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
};

class DatasetRegistry;

struct LoadCall : std::enable_shared_from_this<LoadCall> {
  // Blocks until the load has ended or `timeout` passes; then the dataset is
  // LOADING. After this has returned a READY dataset, no Cancel takes the
  // session's hold away. Errors of a load that ended before it was planned:
  //   ALREADY_EXISTS      the name is another dataset's
  //   RESOURCE_EXHAUSTED  it does not fit
  //   CANCELLED           it was cancelled
  // Also any error of the source. NOT_FOUND if the dataset is gone, even if
  // another one has its name.
  absl::StatusOr<DatasetInfo> Await(absl::Duration timeout);
  // Gives the call up: releases the hold that its session has by it alone.
  void Cancel();

  // These do not change.
  DatasetRegistry* registry = nullptr;
  LoadRequest request;
  PlacementRequest placement;
  Caller caller;
  absl::Duration started;  // of the monotonic clock
  std::string request_id;  // as DatasetEntry::request_id

  // Opened when the load has ended, or cannot begin, or the daemon ends.
  Latch settled;
  // Why there is no dataset. Read it once the call is settled.
  absl::Status error;

  // The owner's.
  bool is_settled = false;
  bool is_given_up = false;
  uint64_t id = 0;  // of the dataset; 0 while it is not known
  // Looks at the files; null while none does.
  std::shared_ptr<SourceScan> scan;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_REGISTRY_LOAD_CALL_H_
