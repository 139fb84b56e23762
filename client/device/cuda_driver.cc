#include "client/device/cuda_driver.h"

#include <cuda.h>
#include <string.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/gpu_uuid.h"
#include "base/status_macros.h"
#include "cuda/device/driver_api.h"

namespace datasetd::client {
namespace {

absl::Status ToStatus(const DriverApi& api, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  if (api.cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "?";
  const std::string message = absl::StrCat(call, ": ", name);
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return absl::CancelledError(message);
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError(message);
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      return absl::AbortedError(message);
    default:
      return absl::InternalError(message);
  }
}

std::string UuidText(const DriverApi& api, CUdevice device,
                     const CUuuid& uuid) {
  return GpuUuidText(absl::string_view(uuid.bytes, sizeof(uuid.bytes)),
                     IsMigUuid(api, device, uuid));
}

// Makes a context current, and permits calls that a capture in global mode on
// another stream would forbid.
class ContextScope {
 public:
  ContextScope(const DriverApi& api, CUcontext context) : api_(api) {
    result_ = api_.cuCtxPushCurrent(context);
    if (result_ == CUDA_SUCCESS) {
      api_.cuThreadExchangeStreamCaptureMode(&capture_mode_);
    }
  }
  ~ContextScope() {
    if (result_ != CUDA_SUCCESS) return;
    api_.cuThreadExchangeStreamCaptureMode(&capture_mode_);
    CUcontext popped;
    api_.cuCtxPopCurrent(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  absl::Status status() const {
    return ToStatus(api_, result_, "cuCtxPushCurrent");
  }

 private:
  const DriverApi& api_;
  CUresult result_;
  CUstreamCaptureMode capture_mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

CUdeviceptr DeviceAddress(const void* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}
CUstream Stream(uint64_t stream) { return reinterpret_cast<CUstream>(stream); }

#define DATASETD_CUDA_RETURN_IF_ERROR(call) \
  DATASETD_RETURN_IF_ERROR(ToStatus(api_, api_.call, #call))

class DynamicCudaDriver final : public CudaDriver {
 public:
  DynamicCudaDriver(const DriverApi& api, CUdevice device, int ordinal)
      : api_(api), device_(device), ordinal_(ordinal) {}
  ~DynamicCudaDriver() override {
    if (context_ == nullptr) return;
    if (event_ != nullptr) {
      const ContextScope scope(api_, context_);
      if (scope.status().ok()) {
        if (own_stream_ != nullptr) api_.cuStreamDestroy(own_stream_);
        api_.cuEventDestroy(event_);
      }
    }
    api_.cuDevicePrimaryCtxRelease(device_);
  }

  absl::Status Init() {
    DATASETD_CUDA_RETURN_IF_ERROR(cuDevicePrimaryCtxRetain(&context_, device_));
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(
        cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    DATASETD_CUDA_RETURN_IF_ERROR(
        cuStreamCreateWithPriority(&own_stream_, CU_STREAM_NON_BLOCKING, 0));
    return absl::OkStatus();
  }

  int ordinal() const override { return ordinal_; }

  absl::StatusOr<void*> OpenIpcHandle(const std::string& handle) override {
    CUipcMemHandle bytes;
    if (handle.size() != sizeof(bytes)) {
      return absl::InternalError(
          absl::StrCat("a CUDA IPC handle of ", handle.size(), " bytes"));
    }
    memcpy(&bytes, handle.data(), sizeof(bytes));
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    CUdeviceptr address = 0;
    DATASETD_CUDA_RETURN_IF_ERROR(cuIpcOpenMemHandle(
        &address, bytes, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return reinterpret_cast<void*>(address);
  }

  absl::Status CloseIpcHandle(void* address) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(cuIpcCloseMemHandle(DeviceAddress(address)));
    return absl::OkStatus();
  }

  absl::StatusOr<void*> MapDescriptor(int fd, size_t size_bytes) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    CUmemGenericAllocationHandle handle;
    DATASETD_CUDA_RETURN_IF_ERROR(cuMemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    absl::StatusOr<void*> address = MapAllocation(handle, size_bytes);
    // A successful mapping keeps the memory alive.
    api_.cuMemRelease(handle);
    return address;
  }

  absl::Status UnmapDescriptor(void* address, size_t size_bytes) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(
        cuMemUnmap(DeviceAddress(address), size_bytes));
    DATASETD_CUDA_RETURN_IF_ERROR(
        cuMemAddressFree(DeviceAddress(address), size_bytes));
    return absl::OkStatus();
  }

  absl::Status RegisterHostMemory(void* address, size_t size_bytes) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(cuMemHostRegister(
        address, size_bytes,
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    CUdeviceptr device_address = 0;
    const CUresult result =
        api_.cuMemHostGetDevicePointer(&device_address, address, 0);
    if (result != CUDA_SUCCESS) {
      api_.cuMemHostUnregister(address);
      return ToStatus(api_, result, "cuMemHostGetDevicePointer");
    }
    host_base_ = static_cast<char*>(address);
    device_base_ = device_address;
    return absl::OkStatus();
  }

  absl::Status UnregisterHostMemory(void* address) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    host_base_ = nullptr;
    DATASETD_CUDA_RETURN_IF_ERROR(cuMemHostUnregister(address));
    return absl::OkStatus();
  }

  bool CanWriteValues() const override { return host_base_ != nullptr; }

  absl::Status WriteValue(uint64_t stream, void* word,
                          uint64_t value) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    const CUdeviceptr target =
        device_base_ + (static_cast<char*>(word) - host_base_);
    DATASETD_CUDA_RETURN_IF_ERROR(cuStreamWriteValue64(
        Stream(stream), target, value, CU_STREAM_WRITE_VALUE_DEFAULT));
    return absl::OkStatus();
  }

  absl::Status LaunchHostFunction(uint64_t stream, void (*function)(void*),
                                  void* argument) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(
        cuLaunchHostFunc(Stream(stream), function, argument));
    return absl::OkStatus();
  }

  bool IsCapturing(uint64_t stream) override {
    const ContextScope scope(api_, context_);
    if (!scope.status().ok()) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = api_.cuStreamIsCapturing(Stream(stream), &status);
    // Returned for the legacy stream while another stream captures.
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

  uint64_t own_stream() const override {
    return reinterpret_cast<uint64_t>(own_stream_);
  }

  absl::Status AwaitStream(uint64_t other) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    CUcontext context = nullptr;
    DATASETD_CUDA_RETURN_IF_ERROR(cuStreamGetCtx(Stream(other), &context));
    if (context != context_) return AwaitForeignStream(other, context);
    DATASETD_CUDA_RETURN_IF_ERROR(cuEventRecord(event_, Stream(other)));
    DATASETD_CUDA_RETURN_IF_ERROR(cuStreamWaitEvent(own_stream_, event_, 0));
    return absl::OkStatus();
  }

  absl::Status CopyToHost(void* to, const void* from,
                          size_t size_bytes) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(
        cuMemcpyDtoH(to, reinterpret_cast<CUdeviceptr>(from), size_bytes));
    return absl::OkStatus();
  }

 private:
  // `other` is of another GPU, or of a context of the job's own: its events
  // are recorded in that context, and awaited in any.
  absl::Status AwaitForeignStream(uint64_t other, CUcontext context) {
    CUevent event = nullptr;
    absl::Status status;
    {
      const ContextScope scope(api_, context);
      DATASETD_RETURN_IF_ERROR(scope.status());
      DATASETD_CUDA_RETURN_IF_ERROR(
          cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
      status = ToStatus(api_, api_.cuEventRecord(event, Stream(other)),
                        "cuEventRecord");
    }
    if (status.ok()) {
      status = ToStatus(api_, api_.cuStreamWaitEvent(own_stream_, event, 0),
                        "cuStreamWaitEvent");
    }
    // It may go before the work that it stands for is done.
    api_.cuEventDestroy(event);
    return status;
  }

  absl::StatusOr<void*> MapAllocation(CUmemGenericAllocationHandle handle,
                                      size_t size_bytes) {
    CUdeviceptr address = 0;
    DATASETD_CUDA_RETURN_IF_ERROR(
        cuMemAddressReserve(&address, size_bytes, 0, 0, 0));
    CUresult result = api_.cuMemMap(address, size_bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
      api_.cuMemAddressFree(address, size_bytes);
      return ToStatus(api_, result, "cuMemMap");
    }
    result = SetAccess(address, size_bytes, device_);
    if (result != CUDA_SUCCESS) {
      api_.cuMemUnmap(address, size_bytes);
      api_.cuMemAddressFree(address, size_bytes);
      return ToStatus(api_, result, "cuMemSetAccess");
    }
    GivePeersAccess(address, size_bytes);
    return reinterpret_cast<void*>(address);
  }

  CUresult SetAccess(CUdeviceptr address, size_t size_bytes, CUdevice device) {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return api_.cuMemSetAccess(address, size_bytes, &access, 1);
  }

  // A framework that has enabled peer access between two GPUs copies directly
  // from one to the other; such a mapping needs access of its own.
  // A refusal is no error: only such copies fail then.
  void GivePeersAccess(CUdeviceptr address, size_t size_bytes) {
    int count = 0;
    if (api_.cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      CUdevice peer;
      int can_access = 0;
      if (api_.cuDeviceGet(&peer, ordinal) == CUDA_SUCCESS && peer != device_ &&
          api_.cuDeviceCanAccessPeer(&can_access, peer, device_) ==
              CUDA_SUCCESS &&
          can_access != 0) {
        (void)SetAccess(address, size_bytes, peer);
      }
    }
  }

  const DriverApi& api_;
  const CUdevice device_;
  const int ordinal_;
  CUcontext context_ = nullptr;
  CUevent event_ = nullptr;
  CUstream own_stream_ = nullptr;
  char* host_base_ = nullptr;
  CUdeviceptr device_base_ = 0;
};

struct VisibleGpu {
  CUdevice device = 0;
  CUuuid uuid = {};
};

// By ordinal. Initialises the driver.
absl::StatusOr<std::vector<VisibleGpu>> VisibleGpus(const DriverApi& api_) {
  if (const CUresult result = api_.cuInit(0); result != CUDA_SUCCESS) {
    if (result == CUDA_ERROR_NO_DEVICE) return std::vector<VisibleGpu>();
    return ToStatus(api_, result, "cuInit");
  }
  int count = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(cuDeviceGetCount(&count));
  std::vector<VisibleGpu> gpus(static_cast<size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    VisibleGpu& gpu = gpus[static_cast<size_t>(ordinal)];
    DATASETD_CUDA_RETURN_IF_ERROR(cuDeviceGet(&gpu.device, ordinal));
    DATASETD_CUDA_RETURN_IF_ERROR(cuDeviceGetUuid(&gpu.uuid, gpu.device));
  }
  return gpus;
}

// Returns an error text: which GPUs this process sees, and what to check.
std::string NotVisible(const DriverApi& api,
                       const std::vector<VisibleGpu>& gpus) {
  std::string visible;
  for (size_t ordinal = 0; ordinal < gpus.size(); ++ordinal) {
    absl::StrAppend(&visible, visible.empty() ? "" : ", ", "cuda:", ordinal,
                    " ",
                    UuidText(api, gpus[ordinal].device, gpus[ordinal].uuid));
  }
  return absl::StrCat("which this process does not see; it sees ",
                      visible.empty() ? "no GPU" : visible,
                      ": check CUDA_VISIBLE_DEVICES");
}

}  // namespace

absl::StatusOr<std::string> GpuUuid(int ordinal) {
  const absl::StatusOr<const DriverApi*> api = GetDriverApi();
  if (!api.ok()) {
    return absl::Status(
        api.status().code(),
        absl::StrCat("device: cuda:", ordinal, ": ", api.status().message()));
  }
  DATASETD_ASSIGN_OR_RETURN(const std::vector<VisibleGpu> gpus,
                            VisibleGpus(**api));
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= gpus.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device: cuda:", ordinal, ", ", NotVisible(**api, gpus)));
  }
  const VisibleGpu& gpu = gpus[static_cast<size_t>(ordinal)];
  return UuidText(**api, gpu.device, gpu.uuid);
}

std::string CurrentGpuUuid() {
  const auto api = GetDriverApi();
  CUdevice device;
  CUuuid uuid;
  if (!api.ok() || (*api)->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
      (*api)->cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS) {
    return "";
  }
  return UuidText(**api, device, uuid);
}

absl::StatusOr<std::unique_ptr<CudaDriver>> CudaDriver::Open(
    const std::string& uuid, const std::string& device, bool is_mig) {
  DATASETD_ASSIGN_OR_RETURN(const DriverApi* const api, GetDriverApi());
  if (uuid.size() != sizeof(CUuuid)) {
    return absl::InternalError(
        absl::StrCat("a GPU UUID of ", uuid.size(), " bytes"));
  }
  DATASETD_ASSIGN_OR_RETURN(const std::vector<VisibleGpu> gpus,
                            VisibleGpus(*api));
  for (size_t ordinal = 0; ordinal < gpus.size(); ++ordinal) {
    const VisibleGpu& gpu = gpus[ordinal];
    if (memcmp(uuid.data(), gpu.uuid.bytes, sizeof(gpu.uuid.bytes)) != 0) {
      continue;
    }
    auto driver = std::make_unique<DynamicCudaDriver>(
        *api, gpu.device, static_cast<int>(ordinal));
    DATASETD_RETURN_IF_ERROR(driver->Init());
    return driver;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the feed is on the daemon's ", device, " ",
                   GpuUuidText(uuid, is_mig), ", ", NotVisible(*api, gpus)));
}

#undef DATASETD_CUDA_RETURN_IF_ERROR

}  // namespace datasetd::client
