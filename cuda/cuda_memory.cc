#include "cuda/cuda_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cuda/current_device.h"
#include "cuda/status.h"
#include "cuda/status_macros.h"

namespace datasetd {

void CudaMallocTraits::Destroy(Handle data) {
  DATASETD_CUDA_LOG_IF_ERROR(cudaFree(data));
}

void CudaHostAllocTraits::Destroy(Handle data) {
  DATASETD_CUDA_LOG_IF_ERROR(cudaFreeHost(data));
}

absl::Status CheckNotEmpty(size_t size_bytes) {
  if (size_bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("an allocation of 0 bytes");
}

absl::StatusOr<CudaMalloc> MallocOnDevice(size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(CheckNotEmpty(size_bytes));
  void* data = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(cudaMalloc(&data, size_bytes), size_bytes);
  return CudaMalloc(static_cast<uint8_t*>(data));
}

absl::Status ZeroOnDevice(uint8_t* data, size_t size_bytes) {
  DATASETD_CUDA_RETURN_IF_ERROR(cudaMemset(data, 0, size_bytes), size_bytes);
  DATASETD_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(nullptr));
  return absl::OkStatus();
}

CudaDeviceMemory::CudaDeviceMemory(int ordinal, CudaMalloc memory,
                                   size_t size_bytes)
    : ordinal_(ordinal),
      memory_(std::move(memory)),
      size_bytes_(size_bytes) {}

CudaDeviceMemory::~CudaDeviceMemory() { SetCurrentDeviceOrLog(ordinal_); }

absl::StatusOr<std::unique_ptr<HostMemory>> CudaHostMemory::Create(
    int ordinal, size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(CheckNotEmpty(size_bytes));
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal));
  void* data = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(
      cudaHostAlloc(&data, size_bytes,
                    cudaHostAllocPortable | cudaHostAllocMapped),
      size_bytes);
  CudaHostAlloc memory(static_cast<uint8_t*>(data));
  void* on_device = nullptr;
  DATASETD_CUDA_RETURN_IF_ERROR(cudaHostGetDevicePointer(&on_device, data, 0));
  if (on_device != data) {
    return absl::UnimplementedError(absl::StrCat(
        "cuda:", ordinal, " sees host memory at an address of its own; a ",
        "device with unified addressing is needed"));
  }
  return std::make_unique<CudaHostMemory>(ordinal, std::move(memory),
                                          size_bytes);
}

CudaHostMemory::CudaHostMemory(int ordinal, CudaHostAlloc memory,
                               size_t size_bytes)
    : ordinal_(ordinal),
      memory_(std::move(memory)),
      size_bytes_(size_bytes) {}

CudaHostMemory::~CudaHostMemory() { SetCurrentDeviceOrLog(ordinal_); }

}  // namespace datasetd
