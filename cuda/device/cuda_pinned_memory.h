// Host memory of any size, pinned and mapped into every device's address space
// at its host address.
//
// It is pinned in pieces: one call of the driver for hundreds of GiB would hold
// its locks for minutes, and for 512 GiB or more fails (R580). Kernels and the
// host use the pieces as one. REQUIRES: no copy of a stream begins in one piece
// and ends in another; the driver refuses it.

#ifndef DATASETD_CUDA_DEVICE_CUDA_PINNED_MEMORY_H_
#define DATASETD_CUDA_DEVICE_CUDA_PINNED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "cuda/device/cuda_context.h"

namespace datasetd {

class CudaPinnedMemory final : public HostMemory {
 public:
  // Zeroed. `piece_bytes` is a multiple of the page size.
  //
  //   INVALID_ARGUMENT    size_bytes is 0
  //   RESOURCE_EXHAUSTED  not so much memory, or the driver may not pin it
  //   CANCELLED           is_cancelled was set; asked before each piece
  //   UNIMPLEMENTED       the device sees it at an address of its own
  static absl::StatusOr<std::unique_ptr<HostMemory>> Create(
      const CudaContext& context, size_t size_bytes,
      const std::atomic<bool>& is_cancelled, size_t piece_bytes);
  ~CudaPinnedMemory() override;
  CudaPinnedMemory(const CudaPinnedMemory&) = delete;
  CudaPinnedMemory& operator=(const CudaPinnedMemory&) = delete;

  uint8_t* data() const override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }

 private:
  CudaPinnedMemory(const CudaContext& context, size_t size_bytes,
                   size_t piece_bytes)
      : context_(context), size_bytes_(size_bytes), piece_bytes_(piece_bytes) {}

  absl::Status Map();
  // Pins the next piece.
  absl::Status Pin(size_t bytes);

  const CudaContext& context_;
  const size_t size_bytes_;
  const size_t piece_bytes_;
  uint8_t* data_ = nullptr;  // size_bytes_, mapped
  size_t pinned_bytes_ = 0;  // from data_ on
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_DEVICE_CUDA_PINNED_MEMORY_H_
