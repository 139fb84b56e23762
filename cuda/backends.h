// Makes the backend of a device by its name.

#ifndef DATASETD_CUDA_BACKENDS_H_
#define DATASETD_CUDA_BACKENDS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "cuda/host/host_backend.h"

namespace datasetd {

struct BackendOptions {
  HostBackendOptions host;
  // Of a CUDA device, 1..kMaxBatchesPerLaunch.
  int max_batches_per_launch = kMaxBatchesPerLaunch;
};

// The devices that there are: "cpu", then "cuda:0", ...
std::vector<std::string> ListDevices();

// The UUID of a GPU in text form, "GPU-...", whose name CreateBackend would
// take. Gives it no context. Errors as CreateBackend; INVALID_ARGUMENT for
// "cpu".
absl::StatusOr<std::string> DeviceUuid(const std::string& device_name);

// `device_name` is "cpu", "cuda:N", or the UUID of a GPU, "GPU-...", or the
// beginning of one.
//
//   INVALID_ARGUMENT  no such device; lists those there are
//   UNAVAILABLE       a CUDA device, and there is no driver, no device at all,
//                     or no CUDA in this build
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(
    const std::string& device_name, const BackendOptions& options);

}  // namespace datasetd

#endif  // DATASETD_CUDA_BACKENDS_H_
