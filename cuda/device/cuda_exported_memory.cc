#include "cuda/device/cuda_exported_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"

namespace datasetd {
namespace {

static_assert(sizeof(CUipcMemHandle) == 64);

// REQUIRES: `alignment` is a power of two.
absl::StatusOr<size_t> RoundUp(size_t size_bytes, size_t alignment) {
  DATASETD_RETURN_IF_ERROR(CheckNotEmpty(size_bytes));
  if (size_bytes > std::numeric_limits<size_t>::max() - alignment) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot take ", size_bytes, " bytes of device memory"));
  }
  return (size_bytes + alignment - 1) & ~(alignment - 1);
}

CUmemAllocationProp ExportableOn(CUdevice device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExportedMemory>> CudaIpcMemory::Create(
    const CudaContext& context, size_t size_bytes) {
  DATASETD_ASSIGN_OR_RETURN(const size_t rounded,
                            RoundUp(size_bytes, kExportAlignmentBytes));
  DATASETD_ASSIGN_OR_RETURN(CudaMalloc memory,
                            MallocOnDevice(context, rounded));
  DATASETD_RETURN_IF_ERROR(ZeroOnDevice(context, memory.get(), rounded));
  CUipcMemHandle handle;
  DATASETD_CUDA_RETURN_IF_ERROR(
      context.api().cuIpcGetMemHandle(
          &handle, reinterpret_cast<CUdeviceptr>(memory.get())),
      rounded);
  return std::make_unique<CudaIpcMemory>(context, std::move(memory), rounded,
                                         handle);
}

absl::Span<const uint8_t> CudaIpcMemory::ipc_handle() const {
  return {reinterpret_cast<const uint8_t*>(&handle_), sizeof(handle_)};
}

absl::StatusOr<bool> CudaVmmMemory::IsSupported(const CudaContext& context) {
  for (const CUdevice_attribute attribute :
       {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    DATASETD_ASSIGN_OR_RETURN(const int value, context.Attribute(attribute));
    if (value == 0) return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<ExportedMemory>> CudaVmmMemory::Create(
    const CudaContext& context, size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(context.MakeCurrent());
  // The private constructor keeps half-made objects inside.
  std::unique_ptr<CudaVmmMemory> memory(new CudaVmmMemory(context));
  DATASETD_RETURN_IF_ERROR(memory->Init(size_bytes));
  return memory;
}

absl::Status CudaVmmMemory::Init(size_t size_bytes) {
  const DriverApi& api = context_.api();
  const CUmemAllocationProp properties = ExportableOn(context_.device());
  size_t granularity = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuMemGetAllocationGranularity(
      &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  DATASETD_ASSIGN_OR_RETURN(
      size_bytes_,
      RoundUp(size_bytes, std::max(granularity, kExportAlignmentBytes)));

  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemCreate(&allocation_, size_bytes_, &properties, 0), size_bytes_);
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemAddressReserve(&address_, size_bytes_, 0, 0, 0), size_bytes_);
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemMap(address_, size_bytes_, 0, allocation_, 0), size_bytes_);
  is_mapped_ = true;
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  DATASETD_CUDA_RETURN_IF_ERROR(
      api.cuMemSetAccess(address_, size_bytes_, &access, 1), size_bytes_);
  DATASETD_RETURN_IF_ERROR(ZeroOnDevice(context_, data(), size_bytes_));

  int fd = -1;
  DATASETD_CUDA_RETURN_IF_ERROR(api.cuMemExportToShareableHandle(
      &fd, allocation_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  file_.Reset(fd);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return absl::InternalError(
        absl::StrCat("fcntl(FD_CLOEXEC): ", strerror(errno)));
  }
  return absl::OkStatus();
}

CudaVmmMemory::~CudaVmmMemory() {
  const DriverApi& api = context_.api();
  context_.MakeCurrentOrLog();
  if (is_mapped_) {
    DATASETD_CUDA_LOG_IF_ERROR(api.cuMemUnmap(address_, size_bytes_));
  }
  if (address_ != 0) {
    DATASETD_CUDA_LOG_IF_ERROR(api.cuMemAddressFree(address_, size_bytes_));
  }
  if (allocation_ != 0) {
    DATASETD_CUDA_LOG_IF_ERROR(api.cuMemRelease(allocation_));
  }
}

}  // namespace datasetd
