// A libcuda.so.1 in host memory, whose streams run when the test says so.
//
// Two devices; the second has the UUID "uuuuuuuuuuuuuuuu". A memory descriptor
// is mapped as memory. Built as a shared library and opened by its path.

#include "tests/client/fake_cuda.h"

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#define FAKE_CUDA __attribute__((visibility("default")))

namespace {

struct Event {
  // Of the last record: whether it has completed. An event that was never
  // recorded counts as completed.
  std::shared_ptr<bool> is_completed = std::make_shared<bool>(true);
};

struct State {
  std::recursive_mutex mutex;
  // Operations; false means that it cannot run yet.
  std::map<CUstream, std::deque<std::function<bool()>>> streams;
  std::set<CUstream> capturing;
  int num_contexts = 0;  // pushed and not popped
  int num_mappings = 0;
  int num_registered = 0;
  int num_events = 0;
  int num_violations = 0;
  bool has_write_value = true;
};

State& GetState() {
  static State state;
  return state;
}

using Lock = std::lock_guard<std::recursive_mutex>;

// A call that needs a current context.
void RequireContext() {
  if (GetState().num_contexts == 0) ++GetState().num_violations;
}

void Give(CUstream stream, std::function<bool()> operation) {
  RequireContext();
  State& state = GetState();
  // It would become part of the graph.
  if (state.capturing.count(stream) > 0) ++state.num_violations;
  state.streams[stream].push_back(std::move(operation));
}

bool RunOne(CUstream stream) {
  auto& queue = GetState().streams[stream];
  if (queue.empty() || !queue.front()()) return false;
  queue.pop_front();
  return true;
}

}  // namespace

extern "C" {

FAKE_CUDA void fake_cuda_run(uint64_t stream) {
  const Lock lock(GetState().mutex);
  while (RunOne(reinterpret_cast<CUstream>(stream))) {
  }
}

FAKE_CUDA void fake_cuda_give_work(uint64_t stream, int* done) {
  const Lock lock(GetState().mutex);
  GetState().streams[reinterpret_cast<CUstream>(stream)].push_back([done] {
    ++*done;
    return true;
  });
}

FAKE_CUDA void fake_cuda_set_capturing(uint64_t stream, int is_capturing) {
  const Lock lock(GetState().mutex);
  auto& capturing = GetState().capturing;
  if (is_capturing != 0) {
    capturing.insert(reinterpret_cast<CUstream>(stream));
  } else {
    capturing.erase(reinterpret_cast<CUstream>(stream));
  }
}

FAKE_CUDA void fake_cuda_set_write_value(int has_write_value) {
  GetState().has_write_value = has_write_value != 0;
}

FAKE_CUDA FakeCudaCounts fake_cuda_counts() {
  const Lock lock(GetState().mutex);
  const State& state = GetState();
  return {state.num_mappings, state.num_registered, state.num_events,
          state.num_contexts, state.num_violations};
}

FAKE_CUDA CUresult cuInit(unsigned int) { return CUDA_SUCCESS; }
FAKE_CUDA CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuDeviceGetCount(int* count) {
  *count = 2;
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  memset(uuid->bytes, device == 1 ? 'u' : 'o', sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = reinterpret_cast<CUcontext>(0x1000);
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuCtxPushCurrent_v2(CUcontext) {
  const Lock lock(GetState().mutex);
  ++GetState().num_contexts;
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuCtxPopCurrent_v2(CUcontext*) {
  const Lock lock(GetState().mutex);
  --GetState().num_contexts;
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuCtxSynchronize() {
  const Lock lock(GetState().mutex);
  if (!GetState().capturing.empty()) {
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  bool has_run = true;
  while (has_run) {
    has_run = false;
    for (auto& [stream, queue] : GetState().streams) {
      while (RunOne(stream)) has_run = true;
    }
  }
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuIpcOpenMemHandle_v2(CUdeviceptr*, CUipcMemHandle,
                                         unsigned int) {
  return CUDA_ERROR_INVALID_CONTEXT;
}
FAKE_CUDA CUresult cuIpcCloseMemHandle(CUdeviceptr) { return CUDA_SUCCESS; }

FAKE_CUDA CUresult cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle* handle, void* descriptor,
    CUmemAllocationHandleType) {
  *handle = dup(static_cast<int>(reinterpret_cast<intptr_t>(descriptor)));
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size,
                                       size_t, CUdeviceptr,
                                       unsigned long long) {
  void* const reserved = mmap(nullptr, size, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *address = reinterpret_cast<CUdeviceptr>(reserved);
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  munmap(reinterpret_cast<void*>(address), size);
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuMemMap(CUdeviceptr address, size_t size, size_t,
                            CUmemGenericAllocationHandle handle,
                            unsigned long long) {
  const Lock lock(GetState().mutex);
  ++GetState().num_mappings;
  mmap(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE,
       MAP_SHARED | MAP_FIXED, static_cast<int>(handle), 0);
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  const Lock lock(GetState().mutex);
  --GetState().num_mappings;
  // Work that is left would read it.
  for (const auto& [stream, queue] : GetState().streams) {
    if (!queue.empty()) ++GetState().num_violations;
  }
  mmap(reinterpret_cast<void*>(address), size, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuMemSetAccess(CUdeviceptr, size_t,
                                  const CUmemAccessDesc* access, size_t) {
  return access->location.id == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FAKE_CUDA CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  close(static_cast<int>(handle));
  return CUDA_SUCCESS;
}

FAKE_CUDA CUresult cuMemHostRegister_v2(void*, size_t, unsigned int) {
  const Lock lock(GetState().mutex);
  RequireContext();
  ++GetState().num_registered;
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuMemHostUnregister(void*) {
  const Lock lock(GetState().mutex);
  --GetState().num_registered;
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* device,
                                                void* host, unsigned int) {
  *device = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

FAKE_CUDA CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from,
                                   size_t size_bytes) {
  const Lock lock(GetState().mutex);
  RequireContext();
  memcpy(to, reinterpret_cast<const void*>(from), size_bytes);
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr word,
                                           cuuint64_t value, unsigned int) {
  const Lock lock(GetState().mutex);
  if (!GetState().has_write_value) return CUDA_ERROR_NOT_SUPPORTED;
  Give(stream, [word, value] {
    __atomic_store_n(reinterpret_cast<uint64_t*>(word), value,
                     __ATOMIC_SEQ_CST);
    return true;
  });
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function,
                                    void* argument) {
  const Lock lock(GetState().mutex);
  Give(stream, [function, argument] {
    function(argument);
    return true;
  });
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuStreamIsCapturing(CUstream stream,
                                       CUstreamCaptureStatus* status) {
  const Lock lock(GetState().mutex);
  *status = GetState().capturing.count(stream) > 0
                ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuThreadExchangeStreamCaptureMode(
    CUstreamCaptureMode* mode) {
  static thread_local CUstreamCaptureMode current =
      CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::swap(current, *mode);
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuEventCreate(CUevent* event, unsigned int) {
  const Lock lock(GetState().mutex);
  ++GetState().num_events;
  *event = reinterpret_cast<CUevent>(new Event());
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuEventDestroy_v2(CUevent event) {
  const Lock lock(GetState().mutex);
  --GetState().num_events;
  delete reinterpret_cast<Event*>(event);
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuEventRecord(CUevent handle, CUstream stream) {
  const Lock lock(GetState().mutex);
  Event* const event = reinterpret_cast<Event*>(handle);
  event->is_completed = std::make_shared<bool>(false);
  Give(stream, [is_completed = event->is_completed] {
    *is_completed = true;
    return true;
  });
  return CUDA_SUCCESS;
}
FAKE_CUDA CUresult cuStreamWaitEvent(CUstream stream, CUevent handle,
                                     unsigned int) {
  const Lock lock(GetState().mutex);
  Event* const event = reinterpret_cast<Event*>(handle);
  // What was recorded last at the time of the call.
  Give(stream, [is_completed = event->is_completed] { return *is_completed; });
  return CUDA_SUCCESS;
}

}  // extern "C"
