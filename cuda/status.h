// Errors of the CUDA runtime and driver as absl::Status.
//
// A message holds the call, the error's name and text, the current device and,
// where the call takes memory, the bytes. Codes:
//
//   RESOURCE_EXHAUSTED  out of memory
//   UNAVAILABLE         no driver, no device, or the device is taken
//   UNIMPLEMENTED       not supported by driver or device
//   INTERNAL            all else
//
// Converting an error also clears it from the runtime, so that the next call
// does not report it again; an error of the context stays, and every call
// returns it.

#ifndef DATASETD_CUDA_STATUS_H_
#define DATASETD_CUDA_STATUS_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"

namespace datasetd {

// `size_bytes` is 0 where the call takes no memory.
absl::Status CudaStatus(cudaError_t error, const char* call,
                        size_t size_bytes = 0);
absl::Status CudaDriverStatus(CUresult error, const char* call,
                              size_t size_bytes = 0);

// For destructors: writes an error to stderr, but for that of a driver that is
// shutting down, when there is nothing left to free.
void LogCudaError(cudaError_t error, const char* call);
void LogCudaDriverError(CUresult error, const char* call);

}  // namespace datasetd

// DATASETD_CUDA_RETURN_IF_ERROR(cudaMalloc(&data, size_bytes), size_bytes);
#define DATASETD_CUDA_RETURN_IF_ERROR(call, ...)                               \
  do {                                                                         \
    if (const cudaError_t datasetd_error = (call);                             \
        datasetd_error != cudaSuccess) {                                       \
      return ::datasetd::CudaStatus(datasetd_error, #call                      \
                                    __VA_OPT__(, ) __VA_ARGS__);               \
    }                                                                          \
  } while (false)

#define DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(call, ...)                        \
  do {                                                                         \
    if (const CUresult datasetd_error = (call);                                \
        datasetd_error != CUDA_SUCCESS) {                                      \
      return ::datasetd::CudaDriverStatus(datasetd_error, #call                \
                                          __VA_OPT__(, ) __VA_ARGS__);         \
    }                                                                          \
  } while (false)

#define DATASETD_CUDA_LOG_IF_ERROR(call) ::datasetd::LogCudaError((call), #call)

#define DATASETD_CUDA_DRIVER_LOG_IF_ERROR(call) \
  ::datasetd::LogCudaDriverError((call), #call)

#endif  // DATASETD_CUDA_STATUS_H_
