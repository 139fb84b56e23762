#include "server/devices/device_probe.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cuda/device/cuda_backend.h"
#include "server/devices/run_in_child.h"

namespace datasetd {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);

}  // namespace

absl::Status ProbeDevices(const v1::Config& config) {
  int last_ordinal = config.devices().empty() ? 0 : -1;
  for (const std::string& device : config.devices()) {
    absl::string_view ordinal = device;
    int number = 0;
    if (absl::ConsumePrefix(&ordinal, "cuda:") &&
        absl::SimpleAtoi(ordinal, &number)) {
      last_ordinal = std::max(last_ordinal, number);
    }
  }
  if (last_ordinal < 0) return absl::OkStatus();
  return RunInChild(
      [last_ordinal] {
        const absl::StatusOr<int> num_gpus = CountCudaDevices();
        if (!num_gpus.ok()) return num_gpus.status();
        if (last_ordinal < *num_gpus) return absl::OkStatus();
        return absl::NotFoundError(absl::StrCat(
            "no cuda:", last_ordinal, ": GPUs there are ", *num_gpus));
      },
      kTimeout);
}

}  // namespace datasetd
