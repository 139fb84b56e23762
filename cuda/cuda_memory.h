// Memory of the CUDA backend that stays in this process.

#ifndef DATASETD_CUDA_CUDA_MEMORY_H_
#define DATASETD_CUDA_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/backend.h"
#include "cuda/unique_handle.h"

namespace datasetd {

struct CudaMallocTraits {
  using Handle = uint8_t*;
  static constexpr Handle kNull = nullptr;
  static void Destroy(Handle data);
};
// cudaMalloc to cudaFree. Freeing waits for the device to be idle.
using CudaMalloc = UniqueHandle<CudaMallocTraits>;

struct CudaHostAllocTraits {
  using Handle = uint8_t*;
  static constexpr Handle kNull = nullptr;
  static void Destroy(Handle data);
};
using CudaHostAlloc = UniqueHandle<CudaHostAllocTraits>;

//   INVALID_ARGUMENT  size_bytes is 0
absl::Status CheckNotEmpty(size_t size_bytes);

// On the current device. Errors as in backend.h.
absl::StatusOr<CudaMalloc> MallocOnDevice(size_t size_bytes);

// Zeroes memory of the current device; complete on return.
absl::Status ZeroOnDevice(uint8_t* data, size_t size_bytes);

class CudaDeviceMemory final : public DeviceMemory {
 public:
  CudaDeviceMemory(int ordinal, CudaMalloc memory, size_t size_bytes);
  ~CudaDeviceMemory() override;

  uint8_t* data() const override { return memory_.get(); }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  const int ordinal_;
  CudaMalloc memory_;
  const size_t size_bytes_;
};

// Pinned, mapped into every device's address space at its host address.
class CudaHostMemory final : public HostMemory {
 public:
  static absl::StatusOr<std::unique_ptr<HostMemory>> Create(int ordinal,
                                                            size_t size_bytes);
  CudaHostMemory(int ordinal, CudaHostAlloc memory, size_t size_bytes);
  ~CudaHostMemory() override;

  uint8_t* data() const override { return memory_.get(); }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  const int ordinal_;
  CudaHostAlloc memory_;
  const size_t size_bytes_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_CUDA_MEMORY_H_
