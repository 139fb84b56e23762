#include "tests/cuda/cuda_importer.h"

#include <cuda.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda/device/cuda_context.h"
#include "cuda/device/driver_api.h"
#include "cuda/device/status.h"

namespace datasetd::testing {
namespace {

class CudaView : public ImportedMemory {
 public:
  absl::Status Read(size_t offset_bytes, absl::Span<uint8_t> bytes) override {
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemcpyDtoH(bytes.data(), address_ + offset_bytes, bytes.size()));
    return absl::OkStatus();
  }
  absl::Status Write(size_t offset_bytes,
                     absl::Span<const uint8_t> bytes) override {
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemcpyHtoD(address_ + offset_bytes, bytes.data(), bytes.size()));
    DATASETD_CUDA_RETURN_IF_ERROR(api_.cuCtxSynchronize());
    return absl::OkStatus();
  }

 protected:
  explicit CudaView(const DriverApi& api) : api_(api) {}

  const DriverApi& api_;
  CUdeviceptr address_ = 0;
};

class IpcView final : public CudaView {
 public:
  static absl::StatusOr<std::unique_ptr<ImportedMemory>> Open(
      const DriverApi& api, const ExportDescription& description) {
    CUipcMemHandle handle;
    std::memcpy(&handle, description.ipc_handle, sizeof(handle));
    auto view = std::make_unique<IpcView>(api);
    DATASETD_CUDA_RETURN_IF_ERROR(
        api.cuIpcOpenMemHandle(&view->address_, handle,
                               CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        description.size_bytes);
    return view;
  }
  explicit IpcView(const DriverApi& api) : CudaView(api) {}
  ~IpcView() override {
    if (address_ == 0) return;
    DATASETD_CUDA_LOG_IF_ERROR(api_.cuIpcCloseMemHandle(address_));
  }
};

class VmmView final : public CudaView {
 public:
  static absl::StatusOr<std::unique_ptr<ImportedMemory>> Open(
      const CudaContext& context, const ExportDescription& description,
      const FileDescriptor& file) {
    auto view = std::make_unique<VmmView>(context, description.size_bytes);
    DATASETD_RETURN_IF_ERROR(view->Map(file));
    return view;
  }
  VmmView(const CudaContext& context, size_t size_bytes)
      : CudaView(context.api()),
        device_(context.device()),
        size_bytes_(size_bytes) {}
  ~VmmView() override {
    if (is_mapped_) {
      DATASETD_CUDA_LOG_IF_ERROR(api_.cuMemUnmap(address_, size_bytes_));
    }
    if (address_ != 0) {
      DATASETD_CUDA_LOG_IF_ERROR(api_.cuMemAddressFree(address_, size_bytes_));
    }
    if (allocation_ != 0) {
      DATASETD_CUDA_LOG_IF_ERROR(api_.cuMemRelease(allocation_));
    }
  }

 private:
  absl::Status Map(const FileDescriptor& file) {
    DATASETD_CUDA_RETURN_IF_ERROR(api_.cuMemImportFromShareableHandle(
        &allocation_,
        reinterpret_cast<void*>(static_cast<uintptr_t>(file.get())),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemAddressReserve(&address_, size_bytes_, 0, 0, 0));
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemMap(address_, size_bytes_, 0, allocation_, 0));
    is_mapped_ = true;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device_;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DATASETD_CUDA_RETURN_IF_ERROR(
        api_.cuMemSetAccess(address_, size_bytes_, &access, 1));
    return absl::OkStatus();
  }

  const CUdevice device_;
  const size_t size_bytes_;
  CUmemGenericAllocationHandle allocation_ = 0;
  bool is_mapped_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ImportedMemory>> ImportCuda(
    const ExportDescription& description, FileDescriptor file) {
  DATASETD_ASSIGN_OR_RETURN(const std::unique_ptr<CudaContext> context,
                            CudaContext::Retain(0));
  switch (description.kind) {
    case ExportKind::kCudaIpcHandle:
      return IpcView::Open(context->api(), description);
    case ExportKind::kCudaVmmFd:
      return VmmView::Open(*context, description, file);
    case ExportKind::kMemfd:
      break;
  }
  return absl::UnimplementedError(
      absl::StrCat("no CUDA export: ", ExportKindName(description.kind)));
}

}  // namespace datasetd::testing
