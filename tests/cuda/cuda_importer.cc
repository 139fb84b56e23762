#include "tests/cuda/cuda_importer.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cuda/driver_api.h"
#include "cuda/status.h"
#include "cuda/status_macros.h"

namespace datasetd::testing {
namespace {

class CudaView : public ImportedMemory {
 public:
  absl::Status Read(size_t offset_bytes, absl::Span<uint8_t> bytes) override {
    DATASETD_CUDA_RETURN_IF_ERROR(cudaMemcpy(bytes.data(), data_ + offset_bytes,
                                             bytes.size(),
                                             cudaMemcpyDeviceToHost));
    return absl::OkStatus();
  }
  absl::Status Write(size_t offset_bytes,
                     absl::Span<const uint8_t> bytes) override {
    DATASETD_CUDA_RETURN_IF_ERROR(cudaMemcpy(data_ + offset_bytes, bytes.data(),
                                             bytes.size(),
                                             cudaMemcpyHostToDevice));
    DATASETD_CUDA_RETURN_IF_ERROR(cudaDeviceSynchronize());
    return absl::OkStatus();
  }

 protected:
  uint8_t* data_ = nullptr;
};

class IpcView final : public CudaView {
 public:
  static absl::StatusOr<std::unique_ptr<ImportedMemory>> Open(
      const ExportDescription& description) {
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, description.ipc_handle, sizeof(handle));
    void* data = nullptr;
    DATASETD_CUDA_RETURN_IF_ERROR(
        cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess),
        description.size_bytes);
    auto view = std::make_unique<IpcView>();
    view->data_ = static_cast<uint8_t*>(data);
    return view;
  }
  ~IpcView() override {
    DATASETD_CUDA_LOG_IF_ERROR(cudaIpcCloseMemHandle(data_));
  }
};

class VmmView final : public CudaView {
 public:
  static absl::StatusOr<std::unique_ptr<ImportedMemory>> Open(
      const ExportDescription& description, const FileDescriptor& file) {
    DATASETD_ASSIGN_OR_RETURN(const DriverApi api, LoadDriverApi());
    auto view = std::make_unique<VmmView>(api, description.size_bytes);
    DATASETD_RETURN_IF_ERROR(view->Map(file));
    return view;
  }
  VmmView(const DriverApi& api, size_t size_bytes)
      : api_(api), size_bytes_(size_bytes) {}
  ~VmmView() override {
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

 private:
  absl::Status Map(const FileDescriptor& file) {
    DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(api_.mem_import_from_shareable_handle(
        &allocation_,
        reinterpret_cast<void*>(static_cast<uintptr_t>(file.get())),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(
        api_.mem_address_reserve(&address_, size_bytes_, 0, 0, 0));
    DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(
        api_.mem_map(address_, size_bytes_, 0, allocation_, 0));
    is_mapped_ = true;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 0;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DATASETD_CUDA_DRIVER_RETURN_IF_ERROR(
        api_.mem_set_access(address_, size_bytes_, &access, 1));
    data_ = reinterpret_cast<uint8_t*>(address_);
    return absl::OkStatus();
  }

  const DriverApi api_;
  const size_t size_bytes_;
  CUmemGenericAllocationHandle allocation_ = 0;
  CUdeviceptr address_ = 0;
  bool is_mapped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ImportedMemory>> ImportCuda(
    const ExportDescription& description, FileDescriptor file) {
  DATASETD_CUDA_RETURN_IF_ERROR(cudaSetDevice(0));
  DATASETD_CUDA_RETURN_IF_ERROR(cudaFree(nullptr));
  switch (description.kind) {
    case ExportKind::kCudaIpcHandle:
      return IpcView::Open(description);
    case ExportKind::kCudaVmmFd:
      return VmmView::Open(description, file);
    case ExportKind::kMemfd:
      break;
  }
  return absl::UnimplementedError(
      absl::StrCat("no CUDA export: ", ExportKindName(description.kind)));
}

}  // namespace datasetd::testing
