// Follows up the failures of devices.
//
// Whoever meets a failure, in whatever thread and with whatever locks, reports
// it. The device is marked at once, so that nothing new begins there; what is
// to end is ended on a thread of its own. Thread-safe.

#ifndef DATASETD_SERVER_DEVICES_FAILURE_WATCH_H_
#define DATASETD_SERVER_DEVICES_FAILURE_WATCH_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/dataset/device_table.h"

namespace datasetd {

class FailureWatch {
 public:
  // `on_failed` is called on such a thread, once for each device that
  // failed while another one serves. `on_last` is called in the thread that
  // reports the failure of the last device, of one that is not known, or of one
  // that cannot be followed up for lack of a thread; it may end the process.
  // `devices` outlives the watch.
  FailureWatch(DeviceTable* devices,
               std::function<void(ServedDevice& device)> on_failed,
               std::function<void(const absl::Status& failure)> on_last);
  // Handles the failures that were reported before.
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  // REQUIRES: IsDeviceFailure(failure).
  void Report(const absl::Status& failure);

 private:
  DeviceTable* const devices_;
  const std::function<void(ServedDevice& device)> on_failed_;
  const std::function<void(const absl::Status& failure)> on_last_;
  Mutex mutex_;  // so that one report alone finds no other device
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_FAILURE_WATCH_H_
