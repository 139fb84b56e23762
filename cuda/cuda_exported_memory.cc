#include "cuda/cuda_exported_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/current_device.h"
#include "cuda/status.h"
#include "cuda/status_macros.h"

namespace datasetd {
namespace {

constexpr size_t kExportAlignmentBytes = size_t{2} << 20;

static_assert(sizeof(cudaIpcMemHandle_t) == 64);

// REQUIRES: `alignment` is a power of two.
absl::StatusOr<size_t> RoundUp(size_t size_bytes, size_t alignment) {
  DATASETD_RETURN_IF_ERROR(CheckNotEmpty(size_bytes));
  if (size_bytes > std::numeric_limits<size_t>::max() - alignment) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot take ", size_bytes, " bytes of device memory"));
  }
  return (size_bytes + alignment - 1) & ~(alignment - 1);
}

CUmemAllocationProp ExportableOn(int ordinal) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = ordinal;
  return properties;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExportedMemory>> CudaIpcMemory::Create(
    int ordinal, size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal));
  DATASETD_ASSIGN_OR_RETURN(const size_t rounded,
                            RoundUp(size_bytes, kExportAlignmentBytes));
  DATASETD_ASSIGN_OR_RETURN(CudaMalloc memory, MallocOnDevice(rounded));
  DATASETD_RETURN_IF_ERROR(ZeroOnDevice(memory.get(), rounded));
  cudaIpcMemHandle_t handle;
  DATASETD_CUDA_RETURN_IF_ERROR(cudaIpcGetMemHandle(&handle, memory.get()),
                                rounded);
  return std::make_unique<CudaIpcMemory>(ordinal, std::move(memory), rounded,
                                         handle);
}

CudaIpcMemory::CudaIpcMemory(int ordinal, CudaMalloc memory, size_t size_bytes,
                             const cudaIpcMemHandle_t& handle)
    : ordinal_(ordinal),
      memory_(std::move(memory)),
      size_bytes_(size_bytes),
      handle_(handle) {}

CudaIpcMemory::~CudaIpcMemory() { SetCurrentDeviceOrLog(ordinal_); }

absl::Span<const uint8_t> CudaIpcMemory::ipc_handle() const {
  return {reinterpret_cast<const uint8_t*>(&handle_), sizeof(handle_)};
}

absl::StatusOr<bool> CudaVmmMemory::IsSupported(const DriverApi& api,
                                                int ordinal) {
  CUdevice device;
  DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(api.device_get(&device, ordinal));
  for (const CUdevice_attribute attribute :
       {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED}) {
    int value = 0;
    DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(
        api.device_get_attribute(&value, attribute, device));
    if (value == 0) return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<ExportedMemory>> CudaVmmMemory::Create(
    const DriverApi& api, int ordinal, size_t size_bytes) {
  DATASETD_RETURN_IF_ERROR(SetCurrentDevice(ordinal));
  // The private constructor keeps half-made objects inside.
  std::unique_ptr<CudaVmmMemory> memory(new CudaVmmMemory(api, ordinal));
  DATASETD_RETURN_IF_ERROR(memory->Init(size_bytes));
  return memory;
}

CudaVmmMemory::CudaVmmMemory(const DriverApi& api, int ordinal)
    : api_(api), ordinal_(ordinal) {}

absl::Status CudaVmmMemory::Init(size_t size_bytes) {
  const CUmemAllocationProp properties = ExportableOn(ordinal_);
  size_t granularity = 0;
  DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(api_.mem_get_allocation_granularity(
      &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  DATASETD_ASSIGN_OR_RETURN(
      size_bytes_,
      RoundUp(size_bytes, std::max(granularity, kExportAlignmentBytes)));

  DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(
      api_.mem_create(&allocation_, size_bytes_, &properties, 0), size_bytes_);
  DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(
      api_.mem_address_reserve(&address_, size_bytes_, 0, 0, 0), size_bytes_);
  DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(
      api_.mem_map(address_, size_bytes_, 0, allocation_, 0), size_bytes_);
  is_mapped_ = true;
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(
      api_.mem_set_access(address_, size_bytes_, &access, 1), size_bytes_);
  DATASETD_RETURN_IF_ERROR(ZeroOnDevice(data(), size_bytes_));

  int fd = -1;
  DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(api_.mem_export_to_shareable_handle(
      &fd, allocation_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  file_.Reset(fd);
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
    return absl::InternalError(
        absl::StrCat("fcntl(FD_CLOEXEC): ", strerror(errno)));
  }
  return absl::OkStatus();
}

CudaVmmMemory::~CudaVmmMemory() {
  SetCurrentDeviceOrLog(ordinal_);
  if (is_mapped_) {
    DATASETD_CUDA_DRIVER_LOG_IF_ERROR(api_.mem_unmap(address_, size_bytes_));
  }
  if (address_ != 0) {
    DATASETD_CUDA_DRIVER_LOG_IF_ERROR(
        api_.mem_address_free(address_, size_bytes_));
  }
  if (allocation_ != 0) {
    DATASETD_CUDA_DRIVER_LOG_IF_ERROR(api_.mem_release(allocation_));
  }
}

}  // namespace datasetd
