// Modules and launches, with kernels that the test writes in C++.

#include <cuda.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/emulated_gpu/driver/controls.h"
#include "tests/emulated_gpu/driver/in_process.h"
#include "tests/emulated_gpu/driver/scripted_kernels.h"

namespace datasetd::emulated_driver {
namespace {

using emulated_gpu::Access;
using emulated_gpu::AddressSpace;

// Writes `value` to the word at `address`.
struct StoreParameters {
  uint64_t address;
  uint32_t value;
};

KernelOutcome Store(const KernelLaunch& launch, AddressSpace& memory) {
  StoreParameters parameters;
  memcpy(&parameters, launch.parameters.data(), 12);
  std::string why;
  uint8_t* const word =
      memory.Translate(parameters.address, 4, Access::kWrite, &why);
  if (word == nullptr) return {CUDA_ERROR_ILLEGAL_ADDRESS, why};
  memcpy(word, &parameters.value, 4);
  return {};
}

CUfunction LoadStore(uint32_t local_bytes = 0, CUmodule* loaded = nullptr) {
  AddScriptedKernel({.name = "Store",
                     .parameters = {{0, 8}, {8, 4}},
                     .shared_bytes = 1000,
                     .local_bytes = local_bytes,
                     .max_threads = 512},
                    &Store);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, ScriptedPtx().c_str()), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetFunction(&function, module, "Store"), CUDA_SUCCESS);
  if (loaded != nullptr) *loaded = module;
  return function;
}

CUresult Launch(CUfunction function, CUdeviceptr address, uint32_t value,
                CUstream stream = nullptr, unsigned num_threads = 1) {
  void* parameters[] = {&address, &value};
  return cuLaunchKernel(function, 1, 1, 1, num_threads, 1, 1, 0, stream,
                        parameters, nullptr);
}

CUdeviceptr Word() {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 4), CUDA_SUCCESS);
  return address;
}

TEST(ModuleTest, ParametersAreCopiedAtTheCall) {
  WithContext({}, [] {
    const CUfunction function = LoadStore();
    CUdeviceptr address = Word();
    uint32_t value = 7;
    CUstream stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    ASSERT_EQ(datasetd_emulated_gpu_hold(stream, 1), CUDA_SUCCESS);
    void* parameters[] = {&address, &value};
    ASSERT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters,
                             nullptr),
              CUDA_SUCCESS);
    value = 8;
    ASSERT_EQ(datasetd_emulated_gpu_hold(stream, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoH(&value, address, 4), CUDA_SUCCESS);
    EXPECT_EQ(value, 7u);
    // As one buffer.
    StoreParameters buffer = {address, 9};
    size_t size = sizeof(buffer);
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer,
                     CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    ASSERT_EQ(
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, extra),
        CUDA_SUCCESS);
    EXPECT_EQ(cuMemcpyDtoH(&value, address, 4), CUDA_SUCCESS);
    EXPECT_EQ(value, 9u);
  });
}

// cuLaunchKernel and cuFuncGetAttribute.
TEST(ModuleTest, ShapesAreChecked) {
  WithContext({}, [] {
    const CUfunction function = LoadStore();
    const CUdeviceptr address = Word();
    EXPECT_EQ(Launch(function, address, 1, nullptr, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Launch(function, address, 1, nullptr, 512), CUDA_SUCCESS);
    EXPECT_EQ(Launch(function, address, 1, nullptr, 513),
              CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    EXPECT_EQ(Launch(function, address, 1, nullptr, 1025),
              CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr word = address;
    uint32_t value = 1;
    void* parameters[] = {&word, &value};
    EXPECT_EQ(cuLaunchKernel(function, 1, 65536, 1, 1, 1, 1, 0, nullptr,
                             parameters, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    // Static and dynamic shared memory together.
    EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 48 << 10, nullptr,
                             parameters, nullptr),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                             nullptr),
              CUDA_ERROR_INVALID_VALUE);
    int attribute = 0;
    EXPECT_EQ(
        cuFuncGetAttribute(&attribute, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                           function),
        CUDA_SUCCESS);
    EXPECT_EQ(attribute, 512);
    size_t offset = 0;
    size_t size = 0;
    EXPECT_EQ(cuFuncGetParamInfo(function, 1, &offset, &size), CUDA_SUCCESS);
    EXPECT_EQ(offset, 8u);
    EXPECT_EQ(size, 4u);
    EXPECT_EQ(cuFuncGetParamInfo(function, 2, &offset, &size),
              CUDA_ERROR_INVALID_VALUE);
  });
}

// cuda.h, CUDA_ERROR_NO_BINARY_FOR_GPU, _UNSUPPORTED_PTX_VERSION, _INVALID_PTX,
// _INVALID_IMAGE, _NOT_FOUND.
TEST(ModuleTest, ImagesThatCannotBeUsed) {
  WithContext({{"COMPUTE_CAPABILITY", "8.0"}, {"DRIVER_VERSION", "12020"}}, [] {
    CUmodule module = nullptr;
    const auto load = [&module](const std::string& image) {
      return cuModuleLoadData(&module, image.c_str());
    };
    EXPECT_EQ(load(ScriptedPtx("8.0", "sm_90")), CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(load(ScriptedPtx("8.3", "sm_80")),
              CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    EXPECT_EQ(load(ScriptedPtx("8.2", "sm_80") + "unknown.opcode;"),
              CUDA_ERROR_INVALID_PTX);
    EXPECT_EQ(load(std::string(64, 'x')), CUDA_ERROR_INVALID_IMAGE);
    ASSERT_EQ(load(ScriptedPtx("8.2", "sm_75")), CUDA_SUCCESS);
    CUfunction function = nullptr;
    EXPECT_EQ(cuModuleGetFunction(&function, module, "None"),
              CUDA_ERROR_NOT_FOUND);
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(ModuleTest, FunctionsEndWithTheirModule) {
  WithContext({}, [] {
    CUmodule module = nullptr;
    const CUfunction function = LoadStore(0, &module);
    const CUdeviceptr address = Word();
    ASSERT_EQ(datasetd_emulated_gpu_hold(nullptr, 1), CUDA_SUCCESS);
    ASSERT_EQ(Launch(function, address, 3), CUDA_SUCCESS);
    ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(Launch(function, address, 4), CUDA_ERROR_INVALID_HANDLE);
    ASSERT_EQ(datasetd_emulated_gpu_hold(nullptr, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  });
}

TEST(ModuleTest, LibrariesHaveKernels) {
  WithContext({}, [] {
    LoadStore();
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    CUfunction function = nullptr;
    ASSERT_EQ(cuLibraryLoadData(&library, ScriptedPtx().c_str(), nullptr,
                                nullptr, 0, nullptr, nullptr, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "Store"), CUDA_SUCCESS);
    ASSERT_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
    EXPECT_EQ(Launch(function, Word(), 3), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  });
}

// cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS: "any further CUDA work will return the
// same error".
TEST(ModuleTest, FaultOfAKernelEndsTheContext) {
  WithContext({{"DEVICES", "2"}}, [] {
    const CUfunction function = LoadStore();
    const CUdeviceptr freed = Word();
    ASSERT_EQ(cuMemFree(freed), CUDA_SUCCESS);
    const CUdeviceptr address = Word();
    // The launch itself succeeds.
    ASSERT_EQ(Launch(function, freed, 3), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(Launch(function, address, 3), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(cuMemFree(address), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUevent event = nullptr;
    EXPECT_EQ(cuEventCreate(&event, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
    {
      const CurrentContext other(1);
      CUdeviceptr there = 0;
      EXPECT_EQ(cuMemAlloc(&there, 4), CUDA_SUCCESS);
    }
  });
}

// A GPU allows it; here it is a fault unless it is asked for.
TEST(ModuleTest, KernelsDoNotUseHostMemory) {
  for (const bool is_allowed : {true, false}) {
    WithContext({{"KERNELS_USE_HOST", is_allowed ? "1" : "0"}}, [is_allowed] {
      void* pinned = nullptr;
      ASSERT_EQ(cuMemHostAlloc(&pinned, 4, CU_MEMHOSTALLOC_DEVICEMAP),
                CUDA_SUCCESS);
      CUdeviceptr address = 0;
      ASSERT_EQ(cuMemHostGetDevicePointer(&address, pinned, 0), CUDA_SUCCESS);
      ASSERT_EQ(Launch(LoadStore(), address, 3), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSynchronize(),
                is_allowed ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
      // Copies may, all the same.
      if (is_allowed) {
        EXPECT_EQ(cuMemsetD32(address, 7, 1), CUDA_SUCCESS);
      }
    });
  }
}

// A kernel sees what its device has access to: cuCtxEnablePeerAccess.
TEST(ModuleTest, KernelsNeedPeerAccess) {
  for (const bool is_enabled : {true, false}) {
    InProcess({{"DEVICES", "2"}}, [is_enabled] {
      const CurrentContext first(0);
      const CUdeviceptr address = Word();
      const CurrentContext second(1);
      if (is_enabled) {
        ASSERT_EQ(cuCtxEnablePeerAccess(first.get(), 0), CUDA_SUCCESS);
      }
      ASSERT_EQ(Launch(LoadStore(), address, 3), CUDA_SUCCESS);
      EXPECT_EQ(cuCtxSynchronize(),
                is_enabled ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS);
    });
  }
}

// cuda.h, CU_CTX_LMEM_RESIZE_TO_MAX: local memory grows at a launch. 4
// multiprocessors of 2,048 threads with 2,048 bytes each are 16 MiB.
TEST(ModuleTest, FirstLaunchTakesLocalMemory) {
  WithContext({{"MEMORY_MIB", "64"}}, [] {
    const CUfunction function = LoadStore(1536);
    const CUdeviceptr address = Word();
    size_t before = 0;
    size_t total = 0;
    ASSERT_EQ(cuMemGetInfo(&before, &total), CUDA_SUCCESS);
    CUdeviceptr rest = 0;
    ASSERT_EQ(cuMemAlloc(&rest, before), CUDA_SUCCESS);
    // Refused, and no more than that.
    EXPECT_EQ(Launch(function, address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFree(rest), CUDA_SUCCESS);
    EXPECT_EQ(Launch(function, address, 1), CUDA_SUCCESS);
    EXPECT_EQ(Launch(function, address, 1), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    size_t after = 0;
    ASSERT_EQ(cuMemGetInfo(&after, &total), CUDA_SUCCESS);
    EXPECT_EQ(before - after, size_t{16} << 20);
  });
}

TEST(ModuleTest, StreamOfAnotherDevice) {
  InProcess({{"DEVICES", "2"}}, [] {
    const CurrentContext first(0);
    CUstream stream = nullptr;
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    const CurrentContext second(1);
    EXPECT_EQ(Launch(LoadStore(), Word(), 1, stream),
              CUDA_ERROR_INVALID_HANDLE);
  });
}

}  // namespace
}  // namespace datasetd::emulated_driver
