// The backend of an NVIDIA GPU. Device names "cuda:0", "cuda:1", ...
//
// Built without the CUDA toolkit, the same functions return UNAVAILABLE.

#ifndef DATASETD_CUDA_DEVICE_CUDA_BACKEND_H_
#define DATASETD_CUDA_DEVICE_CUDA_BACKEND_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"

namespace datasetd {

struct CudaBackendOptions {
  int ordinal = 0;  // as the process counts, after CUDA_VISIBLE_DEVICES
  int max_batches_per_launch = kMaxBatchesPerLaunch;  // from 1
  // The most host memory that is pinned at once; a multiple of the page size.
  size_t pinned_piece_bytes = size_t{1} << 30;
};

// At least 1; initialises the driver.
//
//   UNAVAILABLE    no driver or no device, which one is said
//   UNIMPLEMENTED  built without CUDA
absl::StatusOr<int> CountCudaDevices();

// The UUID of a GPU in text form (base/gpu_uuid.h). Needs no context.
//
//   INVALID_ARGUMENT  no device of this ordinal
//   UNAVAILABLE, UNIMPLEMENTED  as above
absl::StatusOr<std::string> CudaDeviceUuid(int ordinal);

// Gives the device a context, which an error takes from it again.
//
//   INVALID_ARGUMENT  no device of this ordinal; names how many there are
//   UNAVAILABLE       as above, or another process has the device to itself,
//                     or the device or its driver cannot run the kernels
//   UNIMPLEMENTED     as above
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(
    const CudaBackendOptions& options);

}  // namespace datasetd

#endif  // DATASETD_CUDA_DEVICE_CUDA_BACKEND_H_
