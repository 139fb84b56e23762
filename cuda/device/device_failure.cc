#include "cuda/device/device_failure.h"

#include <atomic>

#include "absl/strings/cord.h"

namespace datasetd {
namespace {

constexpr char kMark[] = "datasetd/device-failure";

std::atomic<void (*)(const absl::Status&)> failure_handler = nullptr;

}  // namespace

absl::Status DeviceFailure(absl::Status status) {
  status.SetPayload(kMark, absl::Cord());
  if (const auto handler = failure_handler.load(); handler != nullptr) {
    handler(status);
  }
  return status;
}

bool IsDeviceFailure(const absl::Status& status) {
  return status.GetPayload(kMark).has_value();
}

void SetDeviceFailureHandler(void (*handler)(const absl::Status& status)) {
  failure_handler.store(handler);
}

}  // namespace datasetd
