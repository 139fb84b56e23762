// Device memory that another process can map, on CUDA.
//
// CudaIpcMemory is a cuMemAlloc exported by its 64-byte handle; CudaVmmMemory
// is a physical allocation of the driver, exported as a file descriptor. Both
// are a multiple of 2 MiB, zeroed, and hold nothing else: an importer sees all
// of the block.

#ifndef DATASETD_CUDA_DEVICE_CUDA_EXPORTED_MEMORY_H_
#define DATASETD_CUDA_DEVICE_CUDA_EXPORTED_MEMORY_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/file_descriptor.h"
#include "cuda/backend/backend.h"
#include "cuda/device/cuda_context.h"
#include "cuda/device/cuda_memory.h"

namespace datasetd {

class CudaIpcMemory final : public CudaOwnedMemory<ExportedMemory, CudaMalloc> {
 public:
  // Errors as in backend.h.
  static absl::StatusOr<std::unique_ptr<ExportedMemory>> Create(
      const CudaContext& context, size_t size_bytes);
  CudaIpcMemory(const CudaContext& context, CudaMalloc memory,
                size_t size_bytes, const CUipcMemHandle& handle)
      : CudaOwnedMemory(context, std::move(memory), size_bytes),
        handle_(handle) {}

  ExportKind export_kind() const override { return ExportKind::kCudaIpcHandle; }
  absl::Span<const uint8_t> ipc_handle() const override;
  int file_descriptor() const override { return -1; }

 private:
  const CUipcMemHandle handle_;
};

class CudaVmmMemory final : public ExportedMemory {
 public:
  // True if the device can make it.
  static absl::StatusOr<bool> IsSupported(const CudaContext& context);

  // Errors as in backend.h.
  static absl::StatusOr<std::unique_ptr<ExportedMemory>> Create(
      const CudaContext& context, size_t size_bytes);
  ~CudaVmmMemory() override;

  uint8_t* data() const override {
    return reinterpret_cast<uint8_t*>(address_);
  }
  size_t size_bytes() const override { return size_bytes_; }
  ExportKind export_kind() const override { return ExportKind::kCudaVmmFd; }
  absl::Span<const uint8_t> ipc_handle() const override { return {}; }
  int file_descriptor() const override { return file_.get(); }

 private:
  explicit CudaVmmMemory(const CudaContext& context) : context_(context) {}
  absl::Status Init(size_t size_bytes);

  const CudaContext& context_;
  size_t size_bytes_ = 0;
  // Made in this order, each may be missing.
  CUmemGenericAllocationHandle allocation_ = 0;
  CUdeviceptr address_ = 0;
  bool is_mapped_ = false;
  FileDescriptor file_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_DEVICE_CUDA_EXPORTED_MEMORY_H_
