// cuGetProcAddress: entry points by their names without version.

#include <cuda.h>

#include <cstring>

#include "tests/emulated_gpu/driver/driver.h"

namespace datasetd::emulated_driver {
namespace {

struct EntryPoint {
  const char* name;
  // The CUDA version that brought this version of the function.
  int version;
  void* address;
};

#define DATASETD_ENTRY(name, version, function) \
  { name, version, reinterpret_cast<void*>(&function) }

extern "C" CUresult cuDeviceGetUuid_v2(CUuuid*, CUdevice);

// Several lines with one name stand from old to new.
const EntryPoint kEntryPoints[] = {
    DATASETD_ENTRY("cuCtxDisablePeerAccess", 4000, cuCtxDisablePeerAccess),
    DATASETD_ENTRY("cuCtxEnablePeerAccess", 4000, cuCtxEnablePeerAccess),
    DATASETD_ENTRY("cuCtxGetCurrent", 4000, cuCtxGetCurrent),
    DATASETD_ENTRY("cuCtxGetDevice", 2000, cuCtxGetDevice),
    DATASETD_ENTRY("cuCtxGetStreamPriorityRange", 5050,
                   cuCtxGetStreamPriorityRange),
    DATASETD_ENTRY("cuCtxPopCurrent", 4000, cuCtxPopCurrent),
    DATASETD_ENTRY("cuCtxPushCurrent", 4000, cuCtxPushCurrent),
    DATASETD_ENTRY("cuCtxSetCurrent", 4000, cuCtxSetCurrent),
    DATASETD_ENTRY("cuCtxSynchronize", 2000, cuCtxSynchronize),
    DATASETD_ENTRY("cuDeviceCanAccessPeer", 4000, cuDeviceCanAccessPeer),
    DATASETD_ENTRY("cuDeviceGet", 2000, cuDeviceGet),
    DATASETD_ENTRY("cuDeviceGetAttribute", 2000, cuDeviceGetAttribute),
    DATASETD_ENTRY("cuDeviceGetCount", 2000, cuDeviceGetCount),
    DATASETD_ENTRY("cuDeviceGetName", 2000, cuDeviceGetName),
    DATASETD_ENTRY("cuDeviceGetUuid", 11040, cuDeviceGetUuid_v2),
    DATASETD_ENTRY("cuDevicePrimaryCtxGetState", 7000,
                   cuDevicePrimaryCtxGetState),
    DATASETD_ENTRY("cuDevicePrimaryCtxRelease", 11000,
                   cuDevicePrimaryCtxRelease),
    DATASETD_ENTRY("cuDevicePrimaryCtxReset", 11000, cuDevicePrimaryCtxReset),
    DATASETD_ENTRY("cuDevicePrimaryCtxRetain", 7000, cuDevicePrimaryCtxRetain),
    DATASETD_ENTRY("cuDevicePrimaryCtxSetFlags", 11000,
                   cuDevicePrimaryCtxSetFlags),
    DATASETD_ENTRY("cuDeviceTotalMem", 3020, cuDeviceTotalMem),
    DATASETD_ENTRY("cuDriverGetVersion", 2020, cuDriverGetVersion),
    DATASETD_ENTRY("cuEventCreate", 2000, cuEventCreate),
    DATASETD_ENTRY("cuEventDestroy", 4000, cuEventDestroy),
    DATASETD_ENTRY("cuEventQuery", 2000, cuEventQuery),
    DATASETD_ENTRY("cuEventRecord", 2000, cuEventRecord),
    DATASETD_ENTRY("cuEventRecordWithFlags", 11010, cuEventRecordWithFlags),
    DATASETD_ENTRY("cuEventSynchronize", 2000, cuEventSynchronize),
    DATASETD_ENTRY("cuFuncGetAttribute", 2020, cuFuncGetAttribute),
    DATASETD_ENTRY("cuFuncGetParamInfo", 12040, cuFuncGetParamInfo),
    DATASETD_ENTRY("cuGetErrorName", 6000, cuGetErrorName),
    DATASETD_ENTRY("cuGetErrorString", 6000, cuGetErrorString),
    DATASETD_ENTRY("cuGetProcAddress", 12000, cuGetProcAddress),
    DATASETD_ENTRY("cuGraphDestroy", 10000, cuGraphDestroy),
    DATASETD_ENTRY("cuGraphExecDestroy", 10000, cuGraphExecDestroy),
    DATASETD_ENTRY("cuGraphGetNodes", 10000, cuGraphGetNodes),
    DATASETD_ENTRY("cuGraphInstantiateWithFlags", 11040,
                   cuGraphInstantiateWithFlags),
    DATASETD_ENTRY("cuGraphLaunch", 10000, cuGraphLaunch),
    DATASETD_ENTRY("cuInit", 2000, cuInit),
    DATASETD_ENTRY("cuIpcCloseMemHandle", 4010, cuIpcCloseMemHandle),
    DATASETD_ENTRY("cuIpcGetMemHandle", 4010, cuIpcGetMemHandle),
    DATASETD_ENTRY("cuIpcOpenMemHandle", 11000, cuIpcOpenMemHandle),
    DATASETD_ENTRY("cuKernelGetFunction", 12000, cuKernelGetFunction),
    DATASETD_ENTRY("cuLaunchHostFunc", 10000, cuLaunchHostFunc),
    DATASETD_ENTRY("cuLaunchKernel", 4000, cuLaunchKernel),
    DATASETD_ENTRY("cuLibraryGetKernel", 12000, cuLibraryGetKernel),
    DATASETD_ENTRY("cuLibraryLoadData", 12000, cuLibraryLoadData),
    DATASETD_ENTRY("cuLibraryUnload", 12000, cuLibraryUnload),
    DATASETD_ENTRY("cuMemAddressFree", 10020, cuMemAddressFree),
    DATASETD_ENTRY("cuMemAddressReserve", 10020, cuMemAddressReserve),
    DATASETD_ENTRY("cuMemAlloc", 3020, cuMemAlloc),
    DATASETD_ENTRY("cuMemAllocHost", 3020, cuMemAllocHost),
    DATASETD_ENTRY("cuMemCreate", 10020, cuMemCreate),
    DATASETD_ENTRY("cuMemExportToShareableHandle", 10020,
                   cuMemExportToShareableHandle),
    DATASETD_ENTRY("cuMemFree", 3020, cuMemFree),
    DATASETD_ENTRY("cuMemFreeHost", 2000, cuMemFreeHost),
    DATASETD_ENTRY("cuMemGetAddressRange", 3020, cuMemGetAddressRange),
    DATASETD_ENTRY("cuMemGetAllocationGranularity", 10020,
                   cuMemGetAllocationGranularity),
    DATASETD_ENTRY("cuMemGetAllocationPropertiesFromHandle", 10020,
                   cuMemGetAllocationPropertiesFromHandle),
    DATASETD_ENTRY("cuMemGetInfo", 3020, cuMemGetInfo),
    DATASETD_ENTRY("cuMemHostAlloc", 2020, cuMemHostAlloc),
    DATASETD_ENTRY("cuMemHostGetDevicePointer", 3020,
                   cuMemHostGetDevicePointer),
    DATASETD_ENTRY("cuMemHostRegister", 6050, cuMemHostRegister),
    DATASETD_ENTRY("cuMemHostUnregister", 4000, cuMemHostUnregister),
    DATASETD_ENTRY("cuMemImportFromShareableHandle", 10020,
                   cuMemImportFromShareableHandle),
    DATASETD_ENTRY("cuMemMap", 10020, cuMemMap),
    DATASETD_ENTRY("cuMemRelease", 10020, cuMemRelease),
    DATASETD_ENTRY("cuMemSetAccess", 10020, cuMemSetAccess),
    DATASETD_ENTRY("cuMemUnmap", 10020, cuMemUnmap),
    DATASETD_ENTRY("cuMemcpy", 4000, cuMemcpy),
    DATASETD_ENTRY("cuMemcpyAsync", 4000, cuMemcpyAsync),
    DATASETD_ENTRY("cuMemcpyDtoD", 3020, cuMemcpyDtoD),
    DATASETD_ENTRY("cuMemcpyDtoDAsync", 3020, cuMemcpyDtoDAsync),
    DATASETD_ENTRY("cuMemcpyDtoH", 3020, cuMemcpyDtoH),
    DATASETD_ENTRY("cuMemcpyDtoHAsync", 3020, cuMemcpyDtoHAsync),
    DATASETD_ENTRY("cuMemcpyHtoD", 3020, cuMemcpyHtoD),
    DATASETD_ENTRY("cuMemcpyHtoDAsync", 3020, cuMemcpyHtoDAsync),
    DATASETD_ENTRY("cuMemsetD32", 3020, cuMemsetD32),
    DATASETD_ENTRY("cuMemsetD32Async", 3020, cuMemsetD32Async),
    DATASETD_ENTRY("cuMemsetD8", 3020, cuMemsetD8),
    DATASETD_ENTRY("cuMemsetD8Async", 3020, cuMemsetD8Async),
    DATASETD_ENTRY("cuModuleGetFunction", 2000, cuModuleGetFunction),
    DATASETD_ENTRY("cuModuleLoadData", 2000, cuModuleLoadData),
    DATASETD_ENTRY("cuModuleLoadDataEx", 2010, cuModuleLoadDataEx),
    DATASETD_ENTRY("cuModuleLoadFatBinary", 2000, cuModuleLoadFatBinary),
    DATASETD_ENTRY("cuModuleUnload", 2000, cuModuleUnload),
    DATASETD_ENTRY("cuPointerGetAttribute", 4000, cuPointerGetAttribute),
    DATASETD_ENTRY("cuStreamBeginCapture", 10010, cuStreamBeginCapture),
    DATASETD_ENTRY("cuStreamCreate", 2000, cuStreamCreate),
    DATASETD_ENTRY("cuStreamCreateWithPriority", 5050,
                   cuStreamCreateWithPriority),
    DATASETD_ENTRY("cuStreamDestroy", 4000, cuStreamDestroy),
    DATASETD_ENTRY("cuStreamEndCapture", 10000, cuStreamEndCapture),
    DATASETD_ENTRY("cuStreamGetCtx", 9020, cuStreamGetCtx),
    DATASETD_ENTRY("cuStreamGetFlags", 5050, cuStreamGetFlags),
    DATASETD_ENTRY("cuStreamGetPriority", 5050, cuStreamGetPriority),
    DATASETD_ENTRY("cuStreamIsCapturing", 10000, cuStreamIsCapturing),
    DATASETD_ENTRY("cuStreamQuery", 2000, cuStreamQuery),
    DATASETD_ENTRY("cuStreamSynchronize", 2000, cuStreamSynchronize),
    DATASETD_ENTRY("cuStreamWaitEvent", 3020, cuStreamWaitEvent),
    DATASETD_ENTRY("cuStreamWriteValue32", 11070, cuStreamWriteValue32),
    DATASETD_ENTRY("cuStreamWriteValue64", 11070, cuStreamWriteValue64),
    DATASETD_ENTRY("cuThreadExchangeStreamCaptureMode", 10010,
                   cuThreadExchangeStreamCaptureMode),
};

#undef DATASETD_ENTRY

}  // namespace

extern "C" {

CUresult cuGetProcAddress(const char* name, void** address, int version,
                          cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuGetProcAddress), kAnyTime, [&](Call& call) -> CUresult {
        if (name == nullptr || address == nullptr) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        call.detail = name;
        *address = nullptr;
        CUdriverProcAddressQueryResult found =
            CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        for (const EntryPoint& entry : kEntryPoints) {
          // A driver has no function of a newer one.
          if (strcmp(entry.name, name) != 0 ||
              entry.version > Driver::Get().settings.driver_version) {
            continue;
          }
          if (entry.version > version) {
            found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
          }
          found = CU_GET_PROC_ADDRESS_SUCCESS;
          *address = entry.address;
        }
        if (status != nullptr) *status = found;
        return *address == nullptr && status == nullptr ? CUDA_ERROR_NOT_FOUND
                                                        : CUDA_SUCCESS;
      });
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
