#include "cuda/backend/device_failure.h"

#include <mutex>
#include <shared_mutex>
#include <utility>

#include "absl/strings/cord.h"

namespace datasetd {
namespace {

constexpr char kMark[] = "datasetd/device-failure";

struct Handler {
  std::shared_mutex mutex;
  std::function<void(const absl::Status&)> call;
};

// Never destroyed: threads may fail while the process ends.
Handler& TheHandler() {
  static Handler* const handler = new Handler;
  return *handler;
}

}  // namespace

absl::Status DeviceFailure(absl::Status status, absl::string_view device) {
  status.SetPayload(kMark, absl::Cord(device));
  Handler& handler = TheHandler();
  const std::shared_lock lock(handler.mutex);
  if (handler.call) handler.call(status);
  return status;
}

bool IsDeviceFailure(const absl::Status& status) {
  return status.GetPayload(kMark).has_value();
}

std::string FailedDevice(const absl::Status& status) {
  const auto device = status.GetPayload(kMark);
  return device.has_value() ? std::string(*device) : "";
}

void SetDeviceFailureHandler(
    std::function<void(const absl::Status& status)> handler) {
  Handler& current = TheHandler();
  const std::unique_lock lock(current.mutex);
  current.call = std::move(handler);
}

}  // namespace datasetd
