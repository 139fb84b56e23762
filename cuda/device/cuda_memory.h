// Memory of the CUDA backend that stays in this process.

#ifndef DATASETD_CUDA_DEVICE_CUDA_MEMORY_H_
#define DATASETD_CUDA_DEVICE_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_handle.h"
#include "cuda/backend/backend.h"
#include "cuda/device/cuda_context.h"

namespace datasetd {

struct CudaMallocTraits {
  using Handle = uint8_t*;
  static constexpr Handle kNull = nullptr;
  static void Destroy(Handle data);
};
// cuMemAlloc to cuMemFree. Freeing waits for the device to be idle.
using CudaMalloc = UniqueHandle<CudaMallocTraits>;

struct CudaHostAllocTraits {
  using Handle = uint8_t*;
  static constexpr Handle kNull = nullptr;
  static void Destroy(Handle data);
};
using CudaHostAlloc = UniqueHandle<CudaHostAllocTraits>;

//   INVALID_ARGUMENT  size_bytes is 0
absl::Status CheckNotEmpty(size_t size_bytes);

// For host memory that the device sees at `on_device`.
//   UNIMPLEMENTED  that is not its host address
absl::Status CheckDeviceAddress(const CudaContext& context, const void* host,
                                CUdeviceptr on_device);

// Errors as in backend.h.
absl::StatusOr<CudaMalloc> MallocOnDevice(const CudaContext& context,
                                          size_t size_bytes);

// Zeroes memory of the device; complete on return.
absl::Status ZeroOnDevice(const CudaContext& context, uint8_t* data,
                          size_t size_bytes);

// Memory of the interface Base, in a CudaMalloc or CudaHostAlloc.
template <typename Base, typename Memory>
class CudaOwnedMemory : public Base {
 public:
  CudaOwnedMemory(const CudaContext& context, Memory memory, size_t size_bytes)
      : context_(context),
        memory_(std::move(memory)),
        size_bytes_(size_bytes) {}
  ~CudaOwnedMemory() override { context_.MakeCurrentOrLog(); }

  uint8_t* data() const override { return memory_.get(); }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  const CudaContext& context_;
  Memory memory_;
  const size_t size_bytes_;
};
using CudaDeviceMemory = CudaOwnedMemory<DeviceMemory, CudaMalloc>;

// Pinned, mapped into every device's address space at its host address. For
// small memory: see cuda_pinned_memory.h. Errors as in backend.h.
absl::StatusOr<std::unique_ptr<HostMemory>> AllocateCudaHostMemory(
    const CudaContext& context, size_t size_bytes);

}  // namespace datasetd

#endif  // DATASETD_CUDA_DEVICE_CUDA_MEMORY_H_
