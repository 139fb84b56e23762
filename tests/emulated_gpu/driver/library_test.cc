// libcuda.so.1 as a program finds it: by dlopen.

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"

namespace datasetd::emulated_driver {
namespace {

// The functions that the daemon, the client and the doctor ask for.
const char* const kFunctions[] = {
    "cuCtxGetStreamPriorityRange",
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxSynchronize",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxSetFlags_v2",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuFuncGetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress_v2",
    "cuInit",
    "cuIpcCloseMemHandle",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuLaunchHostFunc",
    "cuLaunchKernel",
    "cuLibraryLoadData",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamGetCtx",
    "cuStreamIsCapturing",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamWriteValue64_v2",
    "cuThreadExchangeStreamCaptureMode",
    "datasetd_emulated_gpu_counts",
};

void* Library() {
  void* const library = dlopen((std::string("./") + getenv("LIBCUDA")).c_str(),
                               RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

TEST(LibraryTest, HasWhatIsAskedFor) {
  void* const library = Library();
  for (const char* const name : kFunctions) {
    EXPECT_NE(dlsym(library, name), nullptr) << name;
  }
  // Nothing of its inside, which a program might have, too.
  EXPECT_EQ(dlsym(library, "_ZN8datasetd15emulated_driver6Driver3GetEv"),
            nullptr);
}

template <typename Function>
Function* Find(void* library, Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}
#define DATASETD_FIND(function) \
  Find(library, &function, DATASETD_FIND_NAME(function))
#define DATASETD_FIND_NAME(function) DATASETD_FIND_TEXT(function)
#define DATASETD_FIND_TEXT(function) #function

// A kernel that nvcc compiled, on the executor of PTX.
TEST(LibraryTest, RunsAKernel) {
  std::stringstream image;
  image
      << std::ifstream(std::string(getenv("FATBINS")) + "/size.fatbin").rdbuf();
  const std::string bytes = image.str();
  InProcess({}, [&bytes] {
    void* const library = Library();
    CUcontext context = nullptr;
    ASSERT_EQ(DATASETD_FIND(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(DATASETD_FIND(cuDevicePrimaryCtxRetain)(&context, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(DATASETD_FIND(cuCtxPushCurrent)(context), CUDA_SUCCESS);
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    ASSERT_EQ(DATASETD_FIND(cuModuleLoadData)(&module, bytes.data()),
              CUDA_SUCCESS);
    ASSERT_EQ(
        DATASETD_FIND(cuModuleGetFunction)(&function, module, "AddKernel"),
        CUDA_SUCCESS);
    std::vector<int> values(1000, 5);
    CUdeviceptr device = 0;
    ASSERT_EQ(DATASETD_FIND(cuMemAlloc)(&device, 4 * values.size()),
              CUDA_SUCCESS);
    ASSERT_EQ(
        DATASETD_FIND(cuMemcpyHtoD)(device, values.data(), 4 * values.size()),
        CUDA_SUCCESS);
    int count = 999;
    int addend = 37;
    void* parameters[] = {&device, &count, &addend};
    ASSERT_EQ(DATASETD_FIND(cuLaunchKernel)(function, 4, 1, 1, 256, 1, 1, 0,
                                            nullptr, parameters, nullptr),
              CUDA_SUCCESS);
    ASSERT_EQ(
        DATASETD_FIND(cuMemcpyDtoH)(values.data(), device, 4 * values.size()),
        CUDA_SUCCESS);
    EXPECT_EQ(values[998], 42);
    EXPECT_EQ(values[999], 5);
    // One element too many.
    count = 1001;
    ASSERT_EQ(DATASETD_FIND(cuLaunchKernel)(function, 4, 1, 1, 256, 1, 1, 0,
                                            nullptr, parameters, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(DATASETD_FIND(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

}  // namespace
}  // namespace datasetd::emulated_driver
