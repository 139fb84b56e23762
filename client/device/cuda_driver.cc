#include "client/device/cuda_driver.h"

#include <cuda.h>
#include <dlfcn.h>
#include <string.h>

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace datasetd::client {
namespace {

// Entry points, by the names under which the driver exports the versions
// declared in cuda.h.
struct Api {
  CUresult (*Init)(unsigned int);
  CUresult (*GetErrorName)(CUresult, const char**);
  CUresult (*DeviceGetCount)(int*);
  CUresult (*DeviceGet)(CUdevice*, int);
  CUresult (*DeviceGetUuid)(CUuuid*, CUdevice);
  CUresult (*DeviceCanAccessPeer)(int*, CUdevice, CUdevice);
  CUresult (*DevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*DevicePrimaryCtxRelease)(CUdevice);
  CUresult (*CtxPushCurrent)(CUcontext);
  CUresult (*CtxPopCurrent)(CUcontext*);
  CUresult (*CtxSynchronize)();
  CUresult (*MemcpyDtoH)(void*, CUdeviceptr, size_t);
  CUresult (*IpcOpenMemHandle)(CUdeviceptr*, CUipcMemHandle, unsigned int);
  CUresult (*IpcCloseMemHandle)(CUdeviceptr);
  CUresult (*MemImportFromShareableHandle)(CUmemGenericAllocationHandle*, void*,
                                           CUmemAllocationHandleType);
  CUresult (*MemAddressReserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr,
                                unsigned long long);
  CUresult (*MemAddressFree)(CUdeviceptr, size_t);
  CUresult (*MemMap)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                     unsigned long long);
  CUresult (*MemUnmap)(CUdeviceptr, size_t);
  CUresult (*MemSetAccess)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
  CUresult (*MemRelease)(CUmemGenericAllocationHandle);
  CUresult (*MemHostRegister)(void*, size_t, unsigned int);
  CUresult (*MemHostUnregister)(void*);
  CUresult (*MemHostGetDevicePointer)(CUdeviceptr*, void*, unsigned int);
  CUresult (*StreamWriteValue64)(CUstream, CUdeviceptr, cuuint64_t,
                                 unsigned int);
  CUresult (*LaunchHostFunc)(CUstream, CUhostFn, void*);
  CUresult (*StreamIsCapturing)(CUstream, CUstreamCaptureStatus*);
  CUresult (*ThreadExchangeStreamCaptureMode)(CUstreamCaptureMode*);
  CUresult (*StreamWaitEvent)(CUstream, CUevent, unsigned int);
  CUresult (*EventCreate)(CUevent*, unsigned int);
  CUresult (*EventRecord)(CUevent, CUstream);
  CUresult (*EventDestroy)(CUevent);
};

template <typename Function>
absl::Status Resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "the CUDA driver here has no ", name, ": it is too old, update it"));
}

// Never closes the library: the driver does not support unloading.
absl::StatusOr<Api> LoadApi(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA driver in this process (", dlerror(),
                     "): run where the GPU's driver is installed and visible"));
  }
  Api api = {};
#define DATASETD_RESOLVE(member, name) \
  DATASETD_RETURN_IF_ERROR(Resolve(library, name, &api.member))
  DATASETD_RESOLVE(Init, "cuInit");
  DATASETD_RESOLVE(GetErrorName, "cuGetErrorName");
  DATASETD_RESOLVE(DeviceGetCount, "cuDeviceGetCount");
  DATASETD_RESOLVE(DeviceGet, "cuDeviceGet");
  if (!Resolve(library, "cuDeviceGetUuid_v2", &api.DeviceGetUuid).ok()) {
    DATASETD_RESOLVE(DeviceGetUuid, "cuDeviceGetUuid");
  }
  DATASETD_RESOLVE(DeviceCanAccessPeer, "cuDeviceCanAccessPeer");
  DATASETD_RESOLVE(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  DATASETD_RESOLVE(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  DATASETD_RESOLVE(CtxPushCurrent, "cuCtxPushCurrent_v2");
  DATASETD_RESOLVE(CtxPopCurrent, "cuCtxPopCurrent_v2");
  DATASETD_RESOLVE(CtxSynchronize, "cuCtxSynchronize");
  DATASETD_RESOLVE(MemcpyDtoH, "cuMemcpyDtoH_v2");
  DATASETD_RESOLVE(IpcOpenMemHandle, "cuIpcOpenMemHandle_v2");
  DATASETD_RESOLVE(IpcCloseMemHandle, "cuIpcCloseMemHandle");
  DATASETD_RESOLVE(MemImportFromShareableHandle,
                   "cuMemImportFromShareableHandle");
  DATASETD_RESOLVE(MemAddressReserve, "cuMemAddressReserve");
  DATASETD_RESOLVE(MemAddressFree, "cuMemAddressFree");
  DATASETD_RESOLVE(MemMap, "cuMemMap");
  DATASETD_RESOLVE(MemUnmap, "cuMemUnmap");
  DATASETD_RESOLVE(MemSetAccess, "cuMemSetAccess");
  DATASETD_RESOLVE(MemRelease, "cuMemRelease");
  DATASETD_RESOLVE(MemHostRegister, "cuMemHostRegister_v2");
  DATASETD_RESOLVE(MemHostUnregister, "cuMemHostUnregister");
  DATASETD_RESOLVE(MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
  // Version 1 needs a module parameter of the kernel driver.
  if (!Resolve(library, "cuStreamWriteValue64_v2", &api.StreamWriteValue64)
           .ok()) {
    api.StreamWriteValue64 = nullptr;
  }
  DATASETD_RESOLVE(LaunchHostFunc, "cuLaunchHostFunc");
  DATASETD_RESOLVE(StreamIsCapturing, "cuStreamIsCapturing");
  DATASETD_RESOLVE(ThreadExchangeStreamCaptureMode,
                   "cuThreadExchangeStreamCaptureMode");
  DATASETD_RESOLVE(StreamWaitEvent, "cuStreamWaitEvent");
  DATASETD_RESOLVE(EventCreate, "cuEventCreate");
  DATASETD_RESOLVE(EventRecord, "cuEventRecord");
  DATASETD_RESOLVE(EventDestroy, "cuEventDestroy_v2");
#undef DATASETD_RESOLVE
  return api;
}

absl::Status ToStatus(const Api& api, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  if (api.GetErrorName(result, &name) != CUDA_SUCCESS) name = "?";
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

std::string UuidText(const void* bytes) {
  const std::string hex = absl::BytesToHexString(
      std::string(static_cast<const char*>(bytes), sizeof(CUuuid)));
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-",
                      hex.substr(12, 4), "-", hex.substr(16, 4), "-",
                      hex.substr(20));
}

// Makes a context current, and permits calls that a capture in global mode on
// another stream would forbid.
class ContextScope {
 public:
  ContextScope(const Api& api, CUcontext context) : api_(api) {
    result_ = api_.CtxPushCurrent(context);
    if (result_ == CUDA_SUCCESS) {
      api_.ThreadExchangeStreamCaptureMode(&capture_mode_);
    }
  }
  ~ContextScope() {
    if (result_ != CUDA_SUCCESS) return;
    api_.ThreadExchangeStreamCaptureMode(&capture_mode_);
    CUcontext popped;
    api_.CtxPopCurrent(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  absl::Status status() const {
    return ToStatus(api_, result_, "cuCtxPushCurrent");
  }

 private:
  const Api& api_;
  CUresult result_;
  CUstreamCaptureMode capture_mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

CUdeviceptr DeviceAddress(const void* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}
CUstream Stream(uint64_t stream) { return reinterpret_cast<CUstream>(stream); }

#define DATASETD_CUDA_RETURN_IF_ERROR(call) \
  DATASETD_RETURN_IF_ERROR(ToStatus(api_, api_.call, "cu" #call))

class DynamicCudaDriver final : public CudaDriver {
 public:
  DynamicCudaDriver(Api api, CUdevice device, int ordinal)
      : api_(api), device_(device), ordinal_(ordinal) {}
  ~DynamicCudaDriver() override {
    if (context_ == nullptr) return;
    if (event_ != nullptr) {
      const ContextScope scope(api_, context_);
      if (scope.status().ok()) api_.EventDestroy(event_);
    }
    api_.DevicePrimaryCtxRelease(device_);
  }

  absl::Status Init() {
    DATASETD_CUDA_RETURN_IF_ERROR(DevicePrimaryCtxRetain(&context_, device_));
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(
        EventCreate(&event_, CU_EVENT_DISABLE_TIMING));
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
    DATASETD_CUDA_RETURN_IF_ERROR(
        IpcOpenMemHandle(&address, bytes, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return reinterpret_cast<void*>(address);
  }

  absl::Status CloseIpcHandle(void* address) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(IpcCloseMemHandle(DeviceAddress(address)));
    return absl::OkStatus();
  }

  absl::StatusOr<void*> MapDescriptor(int fd, size_t size_bytes) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    CUmemGenericAllocationHandle handle;
    DATASETD_CUDA_RETURN_IF_ERROR(MemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    absl::StatusOr<void*> address = MapAllocation(handle, size_bytes);
    // A successful mapping keeps the memory alive.
    api_.MemRelease(handle);
    return address;
  }

  absl::Status UnmapDescriptor(void* address, size_t size_bytes) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(MemUnmap(DeviceAddress(address), size_bytes));
    DATASETD_CUDA_RETURN_IF_ERROR(
        MemAddressFree(DeviceAddress(address), size_bytes));
    return absl::OkStatus();
  }

  absl::Status RegisterHostMemory(void* address, size_t size_bytes) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(MemHostRegister(
        address, size_bytes,
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
    CUdeviceptr device_address = 0;
    const CUresult result =
        api_.MemHostGetDevicePointer(&device_address, address, 0);
    if (result != CUDA_SUCCESS) {
      api_.MemHostUnregister(address);
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
    DATASETD_CUDA_RETURN_IF_ERROR(MemHostUnregister(address));
    return absl::OkStatus();
  }

  bool CanWriteValues() const override {
    return host_base_ != nullptr && api_.StreamWriteValue64 != nullptr;
  }

  absl::Status WriteValue(uint64_t stream, void* word,
                          uint64_t value) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    const CUdeviceptr target =
        device_base_ + (static_cast<char*>(word) - host_base_);
    DATASETD_CUDA_RETURN_IF_ERROR(StreamWriteValue64(
        Stream(stream), target, value, CU_STREAM_WRITE_VALUE_DEFAULT));
    return absl::OkStatus();
  }

  absl::Status LaunchHostFunction(uint64_t stream, void (*function)(void*),
                                  void* argument) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(
        LaunchHostFunc(Stream(stream), function, argument));
    return absl::OkStatus();
  }

  bool IsCapturing(uint64_t stream) override {
    const ContextScope scope(api_, context_);
    if (!scope.status().ok()) return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CUresult result = api_.StreamIsCapturing(Stream(stream), &status);
    // Returned for the legacy stream while another stream captures.
    if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) return true;
    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
  }

  absl::Status JoinStream(uint64_t stream, uint64_t other) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(EventRecord(event_, Stream(other)));
    DATASETD_CUDA_RETURN_IF_ERROR(StreamWaitEvent(Stream(stream), event_, 0));
    return absl::OkStatus();
  }

  absl::Status CopyToHost(void* to, const void* from,
                          size_t size_bytes) override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(
        MemcpyDtoH(to, reinterpret_cast<CUdeviceptr>(from), size_bytes));
    return absl::OkStatus();
  }

  absl::Status Synchronize() override {
    const ContextScope scope(api_, context_);
    DATASETD_RETURN_IF_ERROR(scope.status());
    DATASETD_CUDA_RETURN_IF_ERROR(CtxSynchronize());
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<void*> MapAllocation(CUmemGenericAllocationHandle handle,
                                      size_t size_bytes) {
    CUdeviceptr address = 0;
    DATASETD_CUDA_RETURN_IF_ERROR(
        MemAddressReserve(&address, size_bytes, 0, 0, 0));
    CUresult result = api_.MemMap(address, size_bytes, 0, handle, 0);
    if (result != CUDA_SUCCESS) {
      api_.MemAddressFree(address, size_bytes);
      return ToStatus(api_, result, "cuMemMap");
    }
    result = SetAccess(address, size_bytes, device_);
    if (result != CUDA_SUCCESS) {
      api_.MemUnmap(address, size_bytes);
      api_.MemAddressFree(address, size_bytes);
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
    return api_.MemSetAccess(address, size_bytes, &access, 1);
  }

  // A framework that has enabled peer access between two GPUs copies directly
  // from one to the other; such a mapping needs access of its own.
  // A refusal is no error: only such copies fail then.
  void GivePeersAccess(CUdeviceptr address, size_t size_bytes) {
    int count = 0;
    if (api_.DeviceGetCount(&count) != CUDA_SUCCESS) return;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      CUdevice peer;
      int can_access = 0;
      if (api_.DeviceGet(&peer, ordinal) == CUDA_SUCCESS && peer != device_ &&
          api_.DeviceCanAccessPeer(&can_access, peer, device_) ==
              CUDA_SUCCESS &&
          can_access != 0) {
        (void)SetAccess(address, size_bytes, peer);
      }
    }
  }

  const Api api_;
  const CUdevice device_;
  const int ordinal_;
  CUcontext context_ = nullptr;
  CUevent event_ = nullptr;
  char* host_base_ = nullptr;
  CUdeviceptr device_base_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDriver>> CudaDriver::Open(
    const std::string& uuid, const std::string& device,
    const std::string& library) {
  DATASETD_ASSIGN_OR_RETURN(const Api api_, LoadApi(library));
  if (uuid.size() != sizeof(CUuuid)) {
    return absl::InternalError(
        absl::StrCat("a GPU UUID of ", uuid.size(), " bytes"));
  }
  DATASETD_CUDA_RETURN_IF_ERROR(Init(0));
  int count = 0;
  DATASETD_CUDA_RETURN_IF_ERROR(DeviceGetCount(&count));
  std::vector<std::string> visible;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice candidate;
    CUuuid candidate_uuid;
    DATASETD_CUDA_RETURN_IF_ERROR(DeviceGet(&candidate, ordinal));
    DATASETD_CUDA_RETURN_IF_ERROR(DeviceGetUuid(&candidate_uuid, candidate));
    if (memcmp(uuid.data(), &candidate_uuid, sizeof(candidate_uuid)) == 0) {
      auto driver =
          std::make_unique<DynamicCudaDriver>(api_, candidate, ordinal);
      DATASETD_RETURN_IF_ERROR(driver->Init());
      return driver;
    }
    visible.push_back(
        absl::StrCat("cuda:", ordinal, " ", UuidText(&candidate_uuid)));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the feed is on the daemon's ", device, " ", UuidText(uuid.data()),
      ", which this process does not see; it sees ",
      visible.empty() ? "no GPU" : absl::StrJoin(visible, ", "),
      ": check CUDA_VISIBLE_DEVICES"));
}

#undef DATASETD_CUDA_RETURN_IF_ERROR

}  // namespace datasetd::client
