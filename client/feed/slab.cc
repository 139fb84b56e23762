#include "client/feed/slab.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/shared_mapping.h"
#include "base/status_macros.h"

namespace datasetd::client {
namespace {

absl::StatusOr<void*> MapMemory(int fd, uint64_t size_bytes) {
  if (fd < 0) {
    return absl::InternalError("the slab came without a descriptor");
  }
  if (!IsSealedAgainstShrinking(fd)) {
    return absl::InternalError("the slab is not sealed against shrinking");
  }
  struct stat status = {};
  if (fstat(fd, &status) != 0) {
    return absl::ErrnoToStatus(errno, "fstat of the slab");
  }
  if (size_bytes == 0 || static_cast<uint64_t>(status.st_size) < size_bytes) {
    return absl::InternalError(absl::StrCat("the slab has ", status.st_size,
                                            " bytes, not ", size_bytes));
  }
  void* const data = MapShared(fd, size_bytes);
  if (data == MAP_FAILED) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("mmap of a slab of ", size_bytes, " bytes"));
  }
  return data;
}

}  // namespace

absl::StatusOr<Slab> Slab::Import(const v1::SlabExport& message, int fd) {
  Slab slab;
  slab.size_bytes_ = message.size_bytes();
  if (message.kind() == v1::EXPORT_KIND_MEMFD) {
    DATASETD_ASSIGN_OR_RETURN(slab.data_, MapMemory(fd, message.size_bytes()));
    slab.kind_ = message.kind();
    return slab;
  }
  if (message.kind() != v1::EXPORT_KIND_CUDA_IPC_HANDLE &&
      message.kind() != v1::EXPORT_KIND_CUDA_VMM_FD) {
    return absl::UnimplementedError(
        absl::StrCat("this client does not know export kind ",
                     static_cast<int>(message.kind())));
  }
  DATASETD_ASSIGN_OR_RETURN(
      slab.cuda_,
      CudaDriver::Open(message.gpu_uuid(), message.device(), message.is_mig()));
  if (message.kind() == v1::EXPORT_KIND_CUDA_IPC_HANDLE) {
    DATASETD_ASSIGN_OR_RETURN(
        slab.data_, slab.cuda_->OpenIpcHandle(message.cuda_ipc_handle()));
  } else {
    if (fd < 0) {
      return absl::InternalError("the slab came without a descriptor");
    }
    DATASETD_ASSIGN_OR_RETURN(
        slab.data_, slab.cuda_->MapDescriptor(fd, message.size_bytes()));
  }
  slab.kind_ = message.kind();
  return slab;
}

Slab::Slab(Slab&& other) noexcept
    : cuda_(std::move(other.cuda_)),
      kind_(other.kind_),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

Slab& Slab::operator=(Slab&& other) noexcept {
  std::swap(cuda_, other.cuda_);
  std::swap(kind_, other.kind_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

Slab::~Slab() {
  if (data_ == nullptr) return;
  // A failure here means that the driver is shutting down; the process's exit
  // frees the memory.
  switch (kind_) {
    case v1::EXPORT_KIND_CUDA_IPC_HANDLE:
      (void)cuda_->CloseIpcHandle(data_);
      break;
    case v1::EXPORT_KIND_CUDA_VMM_FD:
      (void)cuda_->UnmapDescriptor(data_, size_bytes_);
      break;
    default:
      munmap(data_, size_bytes_);
  }
}

}  // namespace datasetd::client
