#include "cuda/device/cuda_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"

namespace datasetd {

void CudaMallocTraits::Destroy(Handle data) {
  DATASETD_CUDA_LOG_IF_ERROR(
      LoadedDriverApi()->cuMemFree(reinterpret_cast<CUdeviceptr>(data)));
}

void CudaHostAllocTraits::Destroy(Handle data) {
  DATASETD_CUDA_LOG_IF_ERROR(LoadedDriverApi()->cuMemFreeHost(data));
}

absl::Status CheckNotEmpty(size_t size_bytes) {
  if (size_bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("an allocation of 0 bytes");
}

absl::Status CheckDeviceAddress(const CudaContext& context, const void* host,
                                CUdeviceptr on_device) {
  if (on_device == reinterpret_cast<CUdeviceptr>(host)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "cuda:", context.ordinal(), " sees host memory at an address of its ",
      "own; a device with unified addressing is needed"));
}

absl::StatusOr<CudaMalloc> MallocOnDevice(const CudaContext& context,
                                          size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(CheckNotEmpty(size_bytes));
  DATASETD_RETURN_IF_ERROR(context.MakeCurrent());
  const DriverApi& api = context.api();
  CUdeviceptr data = 0;
  // Kernels read whole vectors of 16 bytes.
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemAlloc(&data, (size_bytes + 15) & ~15ull), size_bytes);
  return CudaMalloc(reinterpret_cast<uint8_t*>(data));
}

absl::Status ZeroOnDevice(const CudaContext& context, uint8_t* data,
                          size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(context.MakeCurrent());
  const DriverApi& api = context.api();
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(data), 0, size_bytes,
                          nullptr),
      size_bytes);
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuStreamSynchronize(nullptr));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<HostMemory>> AllocateCudaHostMemory(
    const CudaContext& context, size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(CheckNotEmpty(size_bytes));
  DATASETD_RETURN_IF_ERROR(context.MakeCurrent());
  const DriverApi& api = context.api();
  void* data = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemHostAlloc(&data, size_bytes,
                         CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
      size_bytes);
  CudaHostAlloc memory(static_cast<uint8_t*>(data));
  CUdeviceptr on_device = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemHostGetDevicePointer(&on_device, data, 0));
  DATASETD_RETURN_IF_ERROR(CheckDeviceAddress(context, data, on_device));
  return std::make_unique<CudaOwnedMemory<HostMemory, CudaHostAlloc>>(
      context, std::move(memory), size_bytes);
}

}  // namespace datasetd
