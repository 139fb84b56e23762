#include "server/devices/device_probe.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "cuda/backends.h"
#include "cuda/device/cuda_backend.h"
#include "server/devices/run_in_child.h"

namespace datasetd {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);

}  // namespace

absl::Status ProbeDevices(const v1::Config& config,
                          absl::Span<const int> interrupts) {
  const auto& names = config.devices();
  const auto is_gpu = [](const std::string& name) { return name != "cpu"; };
  if (!names.empty() && std::none_of(names.begin(), names.end(), is_gpu)) {
    return absl::OkStatus();
  }
  return RunInChild(
      [&]() -> absl::Status {
        if (names.empty()) return CountCudaDevices().status();
        for (const std::string& name : names) {
          if (is_gpu(name)) DATASETD_RETURN_IF_ERROR(DeviceUuid(name).status());
        }
        return absl::OkStatus();
      },
      kTimeout, interrupts);
}

}  // namespace datasetd
