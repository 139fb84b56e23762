#include "server/devices/failure_watch.h"

#include <string>
#include <utility>

#include "base/background_thread.h"
#include "cuda/backend/device_failure.h"

namespace datasetd {

FailureWatch::FailureWatch(
    DeviceTable* devices, std::function<void(ServedDevice& device)> on_failed,
    std::function<void(const absl::Status& failure)> on_last)
    : devices_(devices),
      on_failed_(std::move(on_failed)),
      on_last_(std::move(on_last)) {}

FailureWatch::~FailureWatch() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

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
    if (!is_last) {
      auto thread = StartThread([this, device] { on_failed_(**device); });
      is_last = !thread.ok();
      if (thread.ok()) threads_.push_back(*std::move(thread));
    }
  }
  if (is_last) on_last_(failure);
}

}  // namespace datasetd
