// The functions of the CUDA driver that daemon, client, doctor and probes call.
// libcuda.so.1 is opened at run time: nothing links it, and there is no CUDA
// runtime.
//
// A member has the name that cuda.h gives the function's newest version, so
// that api.cuMemAlloc is cuMemAlloc_v2 where it is declared and where it is
// called.

#ifndef DATASETD_CUDA_DEVICE_DRIVER_API_H_
#define DATASETD_CUDA_DEVICE_DRIVER_API_H_

#include <cuda.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define DATASETD_CUDA_FUNCTIONS(X)  \
  X(cuCtxEnablePeerAccess)          \
  X(cuCtxGetDevice)                 \
  X(cuCtxGetStreamPriorityRange)    \
  X(cuCtxPopCurrent)                \
  X(cuCtxPushCurrent)               \
  X(cuCtxSetCurrent)                \
  X(cuCtxSynchronize)               \
  X(cuDeviceCanAccessPeer)          \
  X(cuDeviceGet)                    \
  X(cuDeviceGetAttribute)           \
  X(cuDeviceGetCount)               \
  X(cuDeviceGetName)                \
  X(cuDeviceGetUuid)                \
  X(cuDevicePrimaryCtxRelease)      \
  X(cuDevicePrimaryCtxRetain)       \
  X(cuDevicePrimaryCtxSetFlags)     \
  X(cuDriverGetVersion)             \
  X(cuEventCreate)                  \
  X(cuEventDestroy)                 \
  X(cuEventQuery)                   \
  X(cuEventRecord)                  \
  X(cuGetErrorName)                 \
  X(cuGetErrorString)               \
  X(cuGraphDestroy)                 \
  X(cuInit)                         \
  X(cuIpcCloseMemHandle)            \
  X(cuIpcGetMemHandle)              \
  X(cuIpcOpenMemHandle)             \
  X(cuLaunchHostFunc)               \
  X(cuLaunchKernel)                 \
  X(cuMemAddressFree)               \
  X(cuMemAddressReserve)            \
  X(cuMemAlloc)                     \
  X(cuMemCreate)                    \
  X(cuMemExportToShareableHandle)   \
  X(cuMemFree)                      \
  X(cuMemFreeHost)                  \
  X(cuMemGetAllocationGranularity)  \
  X(cuMemGetInfo)                   \
  X(cuMemHostAlloc)                 \
  X(cuMemHostGetDevicePointer)      \
  X(cuMemHostRegister)              \
  X(cuMemHostUnregister)            \
  X(cuMemImportFromShareableHandle) \
  X(cuMemMap)                       \
  X(cuMemRelease)                   \
  X(cuMemSetAccess)                 \
  X(cuMemUnmap)                     \
  X(cuMemcpyDtoDAsync)              \
  X(cuMemcpyDtoH)                   \
  X(cuMemcpyDtoHAsync)              \
  X(cuMemcpyHtoD)                   \
  X(cuMemcpyHtoDAsync)              \
  X(cuMemsetD8Async)                \
  X(cuModuleGetFunction)            \
  X(cuModuleLoadData)               \
  X(cuModuleUnload)                 \
  X(cuStreamBeginCapture)           \
  X(cuStreamCreateWithPriority)     \
  X(cuStreamDestroy)                \
  X(cuStreamEndCapture)             \
  X(cuStreamGetCtx)                 \
  X(cuStreamIsCapturing)            \
  X(cuStreamSynchronize)            \
  X(cuStreamWaitEvent)              \
  X(cuStreamWriteValue64)           \
  X(cuThreadExchangeStreamCaptureMode)

namespace datasetd {

struct DriverApi {
#define DATASETD_CUDA_MEMBER(function) decltype(&::function) function = nullptr;
  DATASETD_CUDA_FUNCTIONS(DATASETD_CUDA_MEMBER)
#undef DATASETD_CUDA_MEMBER
  // cuDeviceGetUuid before CUDA 11.4: of the whole GPU, also where it is
  // divided. Null where a driver has it no more.
  CUresult (*get_whole_gpu_uuid)(CUuuid*, CUdevice) = nullptr;
};

// Whether `uuid`, of cuDeviceGetUuid, is that of an instance of a divided GPU
// (MIG).
bool IsMigUuid(const DriverApi& api, CUdevice device, const CUuuid& uuid);

// The functions of this process's driver, found once; the driver stays open. A
// failure is not kept: the next call looks again. Does not initialise the
// driver. Thread-safe.
//
//   UNAVAILABLE  there is no driver, or it is too old; says which version is
//                needed
absl::StatusOr<const DriverApi*> GetDriverApi();

// "12.2" for 12020, as cuDriverGetVersion reports it.
std::string CudaVersionText(int version);

// "kernels of CUDA 12.9": of the ptxas that made this build's machine code.
std::string KernelsText();

// "CUDA 12.0 (R525)": the oldest driver that runs them.
std::string NeededDriverText();

// Whether a driver of that version, as cuDriverGetVersion tells it, runs the
// kernels of this build: those of the machine code's major number do.
//
//   UNAVAILABLE  it is too old; says which version is needed
absl::Status CheckRunsKernels(int driver_version);
// Likewise, of this process's driver.
absl::Status CheckRunsKernels(const DriverApi& api);

// nullptr before GetDriverApi succeeded.
const DriverApi* LoadedDriverApi();

}  // namespace datasetd

#endif  // DATASETD_CUDA_DEVICE_DRIVER_API_H_
