#include "server/devices/failure_watch.h"

#include <string>
#include <utility>

#include "cuda/backend/device_failure.h"

namespace datasetd {

FailureWatch::FailureWatch(
    DeviceTable* devices, std::function<void(ServedDevice& device)> on_failed,
    std::function<void(const absl::Status& failure)> on_last)
    : devices_(devices),
      on_failed_(std::move(on_failed)),
      on_last_(std::move(on_last)) {}

void FailureWatch::Report(const absl::Status& failure) {
  const std::string name = FailedDevice(failure);
  const auto device = devices_->Find(name);
  if (name.empty() || !device.ok()) {
    on_last_(failure);
    return;
  }
  bool is_last = false;
  {
    MutexLock lock(&mutex_);
    if (!(*device)->health->Fail(failure.message())) return;
    is_last = !devices_->IsServing();
    if (!is_last) worker_.Run([this, device] { on_failed_(**device); });
  }
  if (is_last) on_last_(failure);
}

}  // namespace datasetd
