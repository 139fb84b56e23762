// CudaDriver for builds without the CUDA toolkit's headers.

#include "client/device/cuda_driver.h"

namespace datasetd::client {

absl::StatusOr<std::string> GpuUuid(int ordinal) {
  return absl::UnimplementedError(
      "this datasetd client was built without the CUDA toolkit and knows no "
      "cuda:" +
      std::to_string(ordinal) + ": build it where the toolkit is installed");
}

std::string CurrentGpuUuid() { return ""; }

absl::StatusOr<std::unique_ptr<CudaDriver>> CudaDriver::Open(
    const std::string& /*uuid*/, const std::string& device, bool /*is_mig*/) {
  return absl::UnimplementedError(
      "this datasetd client was built without the CUDA toolkit and cannot open "
      "memory of " +
      device + ": build it where the toolkit is installed");
}

}  // namespace datasetd::client
