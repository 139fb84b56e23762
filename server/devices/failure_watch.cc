#include "server/devices/failure_watch.h"

#include <pthread.h>

#include <string>
#include <utility>

#include "cuda/device/device_failure.h"

namespace datasetd {

FailureWatch::FailureWatch(
    DeviceTable* devices, std::function<void(ServedDevice& device)> on_failed,
    std::function<void(const absl::Status& failure)> on_last)
    : devices_(devices),
      on_failed_(std::move(on_failed)),
      on_last_(std::move(on_last)),
      thread_([this] { Run(); }) {}

FailureWatch::~FailureWatch() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  thread_.join();
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
    if (!is_last) failed_.push_back(*device);
  }
  if (is_last) on_last_(failure);
}

void FailureWatch::Run() {
  pthread_setname_np(pthread_self(), "failures");
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_stopping_ || !failed_.empty();
  };
  while (true) {
    ServedDevice* device;
    {
      MutexLock lock(&mutex_, Condition(&has_work));
      if (failed_.empty()) return;
      device = failed_.front();
      failed_.pop_front();
    }
    on_failed_(*device);
  }
}

}  // namespace datasetd
