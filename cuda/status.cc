#include "cuda/status.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorDevicesUnavailable:
      return absl::StatusCode::kUnavailable;
    case cudaErrorNotSupported:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kInternal;
  }
}

std::string CurrentDevice() {
  int device = -1;
  if (cudaGetDevice(&device) == cudaSuccess) {
    return absl::StrCat("device ", device);
  }
  cudaGetLastError();
  return "no device";
}

bool IsShuttingDown(cudaError_t error) {
  return error == cudaErrorCudartUnloading ||
         error == cudaErrorContextIsDestroyed;
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, const char* call,
                        size_t size_bytes) {
  if (error == cudaSuccess) return absl::OkStatus();
  cudaGetLastError();
  std::string message =
      absl::StrCat(call, ": ", cudaGetErrorName(error), " (",
                   cudaGetErrorString(error), ") on ", CurrentDevice());
  if (size_bytes > 0) absl::StrAppend(&message, ", ", size_bytes, " bytes");
  return absl::Status(CodeOf(error), message);
}

absl::Status CudaDriverStatus(CUresult error, const char* call,
                              size_t size_bytes) {
  // The runtime numbers its errors as the driver does.
  return CudaStatus(static_cast<cudaError_t>(error), call, size_bytes);
}

void LogCudaError(cudaError_t error, const char* call) {
  if (error == cudaSuccess || IsShuttingDown(error)) return;
  std::fprintf(stderr, "datasetd: %s\n",
               CudaStatus(error, call).ToString().c_str());
}

void LogCudaDriverError(CUresult error, const char* call) {
  LogCudaError(static_cast<cudaError_t>(error), call);
}

}  // namespace datasetd
