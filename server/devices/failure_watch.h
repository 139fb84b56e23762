// Follows up the failures of devices.
//
// Whoever meets a failure, in whatever thread and with whatever locks, reports
// it. The device is marked at once, so that nothing new begins there; what is
// to end is ended on the watch's own thread. Thread-safe.

#ifndef DATASETD_SERVER_DEVICES_FAILURE_WATCH_H_
#define DATASETD_SERVER_DEVICES_FAILURE_WATCH_H_

#include <functional>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/worker.h"
#include "server/dataset/device_table.h"

namespace datasetd {

class FailureWatch {
 public:
  // `on_failed` is called on the watch's thread, once for each device that
  // failed while another one serves. `on_last` is called in the thread that
  // reports the failure of the last device, or of one that is not known; it may
  // end the process. `devices` outlives the watch.
  FailureWatch(DeviceTable* devices,
               std::function<void(ServedDevice& device)> on_failed,
               std::function<void(const absl::Status& failure)> on_last);
  // On destruction it handles the failures that were reported before.
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  // REQUIRES: IsDeviceFailure(failure).
  void Report(const absl::Status& failure);

 private:
  DeviceTable* const devices_;
  const std::function<void(ServedDevice& device)> on_failed_;
  const std::function<void(const absl::Status& failure)> on_last_;
  Mutex mutex_;  // so that one report alone finds no other device
  Worker worker_{"failures"};
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DEVICES_FAILURE_WATCH_H_
