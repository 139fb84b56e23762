#include "absl/status/status.h"
#include "cuda/device/cuda_backend.h"

namespace datasetd {
namespace {

absl::Status BuiltWithoutCuda() {
  return absl::UnimplementedError(
      "built without CUDA; use device cpu, or build where the CUDA toolkit is "
      "found (CUDA_HOME)");
}

}  // namespace

absl::StatusOr<int> CountCudaDevices() { return BuiltWithoutCuda(); }

absl::StatusOr<std::string> CudaDeviceUuid(int /*ordinal*/) {
  return BuiltWithoutCuda();
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const CudaBackendOptions& options) {
  return BuiltWithoutCuda();
}

}  // namespace datasetd
