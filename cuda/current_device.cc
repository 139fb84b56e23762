#include "cuda/current_device.h"

#include "cuda/status.h"

namespace datasetd {

absl::Status SetCurrentDevice(int ordinal) {
  DATASETD_CUDA_RETURN_IF_ERROR(cudaSetDevice(ordinal));
  return absl::OkStatus();
}

void SetCurrentDeviceOrLog(int ordinal) {
  DATASETD_CUDA_LOG_IF_ERROR(cudaSetDevice(ordinal));
}

}  // namespace datasetd
