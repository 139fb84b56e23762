#include "cuda/backends.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/gpu_uuid.h"
#include "base/status_macros.h"
#include "cuda/device/cuda_backend.h"

namespace datasetd {
namespace {

// N of "cuda:N", as written by StrCat.
std::optional<int> CudaOrdinal(absl::string_view device_name) {
  int ordinal = -1;
  if (!absl::ConsumePrefix(&device_name, "cuda:") ||
      !absl::SimpleAtoi(device_name, &ordinal) || ordinal < 0 ||
      absl::StrCat(ordinal) != device_name) {
    return std::nullopt;
  }
  return ordinal;
}

// The ordinal of the GPU whose UUID begins with the name; none if there is no
// such GPU, or several.
absl::StatusOr<std::optional<int>> FindByUuid(const std::string& name) {
  DATASETD_ASSIGN_OR_RETURN(const int count, CountCudaDevices());
  std::optional<int> found;
  for (int i = 0; i < count; ++i) {
    DATASETD_ASSIGN_OR_RETURN(const std::string uuid, CudaDeviceUuid(i));
    if (!GpuUuidHasPrefix(uuid, name)) continue;
    if (found.has_value()) return std::nullopt;
    found = i;
  }
  return found;
}

// One of ListDevices, and its UUID if it is a GPU.
std::string Describe(const std::string& device_name) {
  const std::optional<int> ordinal = CudaOrdinal(device_name);
  if (!ordinal.has_value()) return device_name;
  const absl::StatusOr<std::string> uuid = CudaDeviceUuid(*ordinal);
  return uuid.ok() ? absl::StrCat(device_name, " (", *uuid, ")") : device_name;
}

absl::Status NoSuchDevice(const std::string& device_name) {
  return absl::InvalidArgumentError(absl::StrCat(
      "no device \"", device_name, "\"",
      IsGpuUuidName(device_name) ? ", or more than one" : "", "; there is: ",
      absl::StrJoin(ListDevices(), ", ",
                    [](std::string* out, const std::string& name) {
                      out->append(Describe(name));
                    })));
}

absl::StatusOr<int> FindGpu(const std::string& device_name) {
  const bool is_uuid = IsGpuUuidName(device_name);
  std::optional<int> ordinal = CudaOrdinal(device_name);
  if (!ordinal.has_value() && !is_uuid) return NoSuchDevice(device_name);
  const absl::StatusOr<int> count = CountCudaDevices();
  if (!count.ok()) {
    return absl::UnavailableError(
        absl::StrCat("device ", device_name, ": ", count.status().message()));
  }
  if (is_uuid) {
    DATASETD_ASSIGN_OR_RETURN(ordinal, FindByUuid(device_name));
  }
  if (!ordinal.has_value() || *ordinal >= *count) {
    return NoSuchDevice(device_name);
  }
  return *ordinal;
}

}  // namespace

std::vector<std::string> ListDevices() {
  std::vector<std::string> names = {"cpu"};
  const int count = CountCudaDevices().value_or(0);
  for (int i = 0; i < count; ++i) names.push_back(absl::StrCat("cuda:", i));
  return names;
}

absl::StatusOr<std::string> DeviceUuid(const std::string& device_name) {
  DATASETD_ASSIGN_OR_RETURN(const int ordinal, FindGpu(device_name));
  return CudaDeviceUuid(ordinal);
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const std::string& device_name, const BackendOptions& options) {
  if (device_name == "cpu") return CreateHostBackend(options.host);
  DATASETD_ASSIGN_OR_RETURN(const int ordinal, FindGpu(device_name));
  return CreateCudaBackend(
      {.ordinal = ordinal,
       .max_batches_per_launch = options.max_batches_per_launch});
}

}  // namespace datasetd
