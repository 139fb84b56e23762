// Errors of the CUDA driver as absl::Status.
//
// A message holds the function, the error's name and text, the current device
// and, where the call takes memory, the bytes. Codes:
//
//   RESOURCE_EXHAUSTED  out of memory
//   UNAVAILABLE         no driver, no device, or the device is taken
//   UNIMPLEMENTED       not supported by driver or device
//   INTERNAL            all else
//
// An error that ends the context, as every later call returns it, is marked as
// a device failure (cuda/backend/device_failure.h). CUDA_ERROR_UNKNOWN is one
// if the context does no other work either, which is tried: CudaStatus may then
// wait for the device.

#ifndef DATASETD_CUDA_DEVICE_STATUS_H_
#define DATASETD_CUDA_DEVICE_STATUS_H_

#include <cuda.h>

#include <cstddef>

#include "absl/status/status.h"

namespace datasetd {

// True for an error after which the context is of no more use, whichever call
// returned it.
bool IsSticky(CUresult error);

// Names the device of the context that was made current in this thread, for
// the errors of its calls; -1 for none.
void SetCurrentDevice(int ordinal);

// `size_bytes` is 0 where the call takes no memory.
absl::Status CudaStatus(CUresult error, const char* call,
                        size_t size_bytes = 0);

// For destructors: writes an error to stderr, but for that of a driver that is
// shutting down, when there is nothing left to free, and for a device failure,
// of which the handler tells.
void LogCudaError(CUresult error, const char* call);

}  // namespace datasetd

// DATASETD_CUDA_RETURN_IF_ERROR(api.cuMemAlloc(&data, size_bytes), size_bytes);
#define DATASETD_CUDA_RETURN_IF_ERROR(call, ...)                       \
  do {                                                                 \
    if (const CUresult datasetd_error = (call);                        \
        datasetd_error != CUDA_SUCCESS) {                              \
      return ::datasetd::CudaStatus(datasetd_error,                    \
                                    #call __VA_OPT__(, ) __VA_ARGS__); \
    }                                                                  \
  } while (false)

#define DATASETD_CUDA_LOG_IF_ERROR(call) ::datasetd::LogCudaError((call), #call)

#endif  // DATASETD_CUDA_DEVICE_STATUS_H_
