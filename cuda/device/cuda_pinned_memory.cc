#include "cuda/device/cuda_pinned_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/backend/device_failure.h"
#include "cuda/backend/host_memory.h"
#include "cuda/device/cuda_memory.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"

namespace datasetd {
namespace {

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// Takes the pages here and not under the driver's locks.
absl::Status TakePages(uint8_t* data, size_t size_bytes) {
  if (madvise(data, size_bytes, MADV_POPULATE_WRITE) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINVAL) {
    return HostMemoryError("madvise(MADV_POPULATE_WRITE)", size_bytes, errno);
  }
  // Linux before 5.14.
  for (size_t at = 0; at < size_bytes; at += PageBytes()) {
    *const_cast<volatile uint8_t*>(data + at) = 0;
  }
  return absl::OkStatus();
}

absl::Status Register(const DriverApi& api, uint8_t* data, size_t size_bytes) {
  const CUresult error = api.cuMemHostRegister(
      data, size_bytes,
      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  absl::Status status = CudaStatus(error, "cuMemHostRegister", size_bytes);
  if (error != CUDA_ERROR_NOT_PERMITTED && error != CUDA_ERROR_OPERATING_SYSTEM)
    return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(), ": the system does not let the driver pin so much; ",
      "raise the limit of locked memory (LimitMEMLOCK=, ulimit -l)"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostMemory>> CudaPinnedMemory::Create(
    const CudaContext& context, size_t size_bytes,
    const std::atomic<bool>& is_cancelled, size_t piece_bytes) {
  DATASETD_RETURN_IF_ERROR(CheckNotEmpty(size_bytes));
  DATASETD_RETURN_IF_ERROR(CheckAvailableHostBytes(size_bytes));
  DATASETD_RETURN_IF_ERROR(context.MakeCurrent());
  std::unique_ptr<CudaPinnedMemory> memory(
      new CudaPinnedMemory(context, size_bytes, piece_bytes));
  DATASETD_RETURN_IF_ERROR(memory->Map());
  size_t& pinned_bytes = memory->pinned_bytes_;
  while (pinned_bytes < size_bytes) {
    if (is_cancelled.load(std::memory_order_relaxed)) {
      return absl::CancelledError("the load was cancelled");
    }
    const absl::Status status =
        memory->Pin(std::min(piece_bytes, size_bytes - pinned_bytes));
    if (status.ok()) continue;
    if (IsDeviceFailure(status)) return status;
    return absl::Status(
        status.code(), absl::StrCat(status.message(), " (", pinned_bytes,
                                    " of ", size_bytes, " bytes were pinned)"));
  }
  return memory;
}

absl::Status CudaPinnedMemory::Map() {
  void* const data = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return HostMemoryError("mmap", size_bytes_, errno);
  data_ = static_cast<uint8_t*>(data);
  // Advice only: fewer pages to pin. A core dump leaves it out, as memory of
  // cuMemHostAlloc.
  madvise(data_, size_bytes_, MADV_HUGEPAGE);
  madvise(data_, size_bytes_, MADV_DONTDUMP);
  // A child that shared the pages would make the kernel move them at a write,
  // from under the device.
  if (madvise(data_, size_bytes_, MADV_DONTFORK) != 0) {
    return HostMemoryError("madvise(MADV_DONTFORK)", size_bytes_, errno);
  }
  return absl::OkStatus();
}

absl::Status CudaPinnedMemory::Pin(size_t bytes) {
  const DriverApi& api = context_.api();
  uint8_t* const piece = data_ + pinned_bytes_;
  // Others take memory meanwhile.
  DATASETD_RETURN_IF_ERROR(CheckAvailableHostBytes(bytes));
  DATASETD_RETURN_IF_ERROR(TakePages(piece, bytes));
  DATASETD_RETURN_IF_ERROR(Register(api, piece, bytes));
  pinned_bytes_ += bytes;
  CUdeviceptr on_device = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemHostGetDevicePointer(&on_device, piece, 0));
  return CheckDeviceAddress(context_, piece, on_device);
}

CudaPinnedMemory::~CudaPinnedMemory() {
  context_.MakeCurrentOrLog();
  bool is_unpinned = true;
  for (size_t at = 0; at < pinned_bytes_; at += piece_bytes_) {
    const CUresult error = context_.api().cuMemHostUnregister(data_ + at);
    LogCudaError(error, "cuMemHostUnregister");
    is_unpinned = is_unpinned && error == CUDA_SUCCESS;
  }
  // What the driver still takes for pinned keeps its addresses: the device
  // would use these pages where others are meant.
  if (data_ != nullptr && is_unpinned) munmap(data_, size_bytes_);
}

}  // namespace datasetd
