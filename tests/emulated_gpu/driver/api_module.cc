// Modules, functions and launches.

#include <cuda.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/driver/attributes.h"
#include "tests/emulated_gpu/driver/driver.h"
#include "tests/emulated_gpu/driver/fatbin.h"

namespace datasetd::emulated_driver {
namespace {

// NVIDIA, "CUDA Compiler Driver": of shared memory without opting in for more.
constexpr uint64_t kMaxBlockSharedBytes = 48 << 10;
// The driver adds this to the local memory of each thread; observed, not
// documented.
constexpr uint64_t kLocalOverheadBytes = 512;

int Capability(int device) {
  const DeviceSettings& settings = Driver::Get().devices[device].settings;
  return settings.compute_major * 10 + settings.compute_minor;
}

CUresult Load(Call& call, const void* image, uint64_t* handle) {
  Driver& driver = Driver::Get();
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Selection selection;
  const CUresult result =
      SelectPtx(image, Capability(call.context->device),
                driver.settings.driver_version, &selection, &call.detail);
  if (result != CUDA_SUCCESS) return result;
  auto module = std::make_shared<Module>();
  module->context = call.context;
  module->kernels = LoadKernels(selection.ptx, &call.detail);
  if (module->kernels == nullptr) {
    driver.journal->Fault(CUDA_ERROR_INVALID_PTX, call.detail);
    return CUDA_ERROR_INVALID_PTX;
  }
  for (const KernelInfo& info : module->kernels->kernels()) {
    module->functions[info.name] = std::make_shared<Function>(
        Function{module.get(), info, selection.version});
  }
  call.detail = selection.image;
  *handle = driver.NewHandle();
  driver.modules[*handle] = std::move(module);
  return CUDA_SUCCESS;
}

CUresult RunLoad(const char* function, const void* image, uint64_t* handle) {
  return Driver::Get().Run(
      function, kNeedsContext | kUnsafeInCapture,
      [&](Call& call) -> CUresult { return Load(call, image, handle); });
}

CUresult RunUnload(const char* function, uint64_t handle) {
  return Driver::Get().Run(
      function, kNeedsContext | kUnsafeInCapture, [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto it = driver.modules.find(handle);
        if (it == driver.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
        std::erase_if(driver.functions, [&it](const auto& each) {
          return each.second->module == it->second.get();
        });
        driver.modules.erase(it);
        return CUDA_SUCCESS;
      });
}

CUresult RunFind(const char* function, uint64_t module, const char* name,
                 uint64_t* handle) {
  return Driver::Get().Run(
      function, kNeedsContext, [&](Call& call) -> CUresult {
        Driver& driver = Driver::Get();
        const auto it = driver.modules.find(module);
        if (it == driver.modules.end()) return CUDA_ERROR_INVALID_HANDLE;
        if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        const auto found = it->second->functions.find(name);
        if (found == it->second->functions.end()) {
          call.detail = name;
          return CUDA_ERROR_NOT_FOUND;
        }
        *handle = driver.NewHandle();
        driver.functions[*handle] = found->second;
        return CUDA_SUCCESS;
      });
}

std::shared_ptr<Function> FindFunction(uint64_t handle) {
  const auto& functions = Driver::Get().functions;
  const auto it = functions.find(handle);
  return it == functions.end() ? nullptr : it->second;
}

uint32_t MaxThreads(const KernelInfo& info) {
  return info.max_threads == 0 ? 1024 : info.max_threads;
}

CUresult CheckShape(const KernelInfo& info, const KernelLaunch& launch) {
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (launch.grid[0] > 0x7fffffff || launch.grid[1] > 65535 ||
      launch.grid[2] > 65535 || launch.block[0] > 1024 ||
      launch.block[1] > 1024 || launch.block[2] > 64) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t threads =
      uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads > 1024 ||
      uint64_t{info.shared_bytes} + launch.dynamic_shared_bytes >
          kMaxBlockSharedBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return threads > MaxThreads(info) ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
                                    : CUDA_SUCCESS;
}

// `extra` is a list of CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE.
CUresult ReadParameters(const KernelInfo& info, void** parameters, void** extra,
                        std::vector<uint8_t>* bytes) {
  size_t size = 0;
  for (const KernelParameter& parameter : info.parameters) {
    size =
        std::max<size_t>(size, parameter.offset_bytes + parameter.size_bytes);
  }
  bytes->assign(size, 0);
  if (extra != nullptr) {
    if (parameters != nullptr) return CUDA_ERROR_INVALID_VALUE;
    const void* buffer = nullptr;
    size_t buffer_bytes = 0;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
      if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        buffer_bytes = *static_cast<size_t*>(extra[1]);
      }
    }
    if (buffer == nullptr || buffer_bytes < size) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(bytes->data(), buffer, size);
    return CUDA_SUCCESS;
  }
  if (parameters == nullptr) {
    return info.parameters.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < info.parameters.size(); ++i) {
    if (parameters[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    memcpy(bytes->data() + info.parameters[i].offset_bytes, parameters[i],
           info.parameters[i].size_bytes);
  }
  return CUDA_SUCCESS;
}

// The one kernel of ours that reads pinned host memory. Pageable memory it may
// not touch either: that lies in no region.
constexpr char kStageKernel[] = "StageKernel";

// cuda.h, CU_CTX_LMEM_RESIZE_TO_MAX: a launch that needs more local memory than
// the context has makes it grow; it is never given back.
bool GrowLocalMemory(Context& context, const KernelInfo& info) {
  Driver& driver = Driver::Get();
  if (info.local_bytes == 0) return true;
  const auto of = [&](CUdevice_attribute attribute) {
    return static_cast<uint64_t>(
        *ReadAttribute(driver.settings, context.device, attribute));
  };
  const uint64_t needed =
      RoundUp((info.local_bytes + kLocalOverheadBytes) *
                  of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) *
                  of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
              kBlockBytes);
  if (needed <= context.local_memory_bytes) return true;
  if (!driver.Charge(context.device, needed - context.local_memory_bytes)) {
    return false;
  }
  context.local_memory_bytes = needed;
  return true;
}

CUresult Launch(Call& call, const std::shared_ptr<Function>& function,
                Stream& stream, KernelLaunch launch) {
  Driver& driver = Driver::Get();
  const int device = call.context->device;
  AddressSpace& memory = function->info.name == kStageKernel
                             ? driver.memory->ViewOf(device)
                             : driver.memory->KernelViewOf(device);
  return driver.Enqueue(
      stream, {"kernel",
               // The module may be unloaded before.
               [kernels = function->module->kernels, name = function->info.name,
                launch = std::move(launch), &memory]() -> KernelOutcome {
                 return kernels->Launch(name, launch, memory);
               }});
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return RunLoad(DATASETD_SYMBOL(cuModuleLoadData), image,
                 reinterpret_cast<uint64_t*>(module));
}

// The options are about compiling, which does not happen here.
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image,
                            unsigned int num_options, CUjit_option* options,
                            void** values) {
  return RunLoad(DATASETD_SYMBOL(cuModuleLoadDataEx), image,
                 reinterpret_cast<uint64_t*>(module));
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return RunLoad(DATASETD_SYMBOL(cuModuleLoadFatBinary), image,
                 reinterpret_cast<uint64_t*>(module));
}

CUresult cuModuleUnload(CUmodule module) {
  return RunUnload(DATASETD_SYMBOL(cuModuleUnload), FromHandle(module));
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                             const char* name) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return RunFind(DATASETD_SYMBOL(cuModuleGetFunction), FromHandle(module), name,
                 reinterpret_cast<uint64_t*>(function));
}

// Here a library is of the context that is current when it is loaded.
CUresult cuLibraryLoadData(CUlibrary* library, const void* code,
                           CUjit_option* jit_options, void** jit_values,
                           unsigned int num_jit_options,
                           CUlibraryOption* options, void** values,
                           unsigned int num_options) {
  return RunLoad(DATASETD_SYMBOL(cuLibraryLoadData), code,
                 reinterpret_cast<uint64_t*>(library));
}

CUresult cuLibraryUnload(CUlibrary library) {
  return RunUnload(DATASETD_SYMBOL(cuLibraryUnload), FromHandle(library));
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library,
                            const char* name) {
  if (kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return RunFind(DATASETD_SYMBOL(cuLibraryGetKernel), FromHandle(library), name,
                 reinterpret_cast<uint64_t*>(kernel));
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuKernelGetFunction), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             if (function == nullptr) {
                               return CUDA_ERROR_INVALID_VALUE;
                             }
                             if (FindFunction(FromHandle(kernel)) == nullptr) {
                               return CUDA_ERROR_INVALID_HANDLE;
                             }
                             *function =
                                 ToHandle<CUfunction>(FromHandle(kernel));
                             return CUDA_SUCCESS;
                           });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute,
                            CUfunction function) {
  return Driver::Get().Run(DATASETD_SYMBOL(cuFuncGetAttribute), kNeedsContext,
                           [&](Call& call) -> CUresult {
                             const auto found =
                                 FindFunction(FromHandle(function));
                             if (found == nullptr)
                               return CUDA_ERROR_INVALID_HANDLE;
                             if (value == nullptr)
                               return CUDA_ERROR_INVALID_VALUE;
                             const KernelInfo& info = found->info;
                             switch (attribute) {
                               case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
                                 *value = static_cast<int>(MaxThreads(info));
                                 return CUDA_SUCCESS;
                               case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
                                 *value = static_cast<int>(info.shared_bytes);
                                 return CUDA_SUCCESS;
                               case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
                                 *value = 0;
                                 return CUDA_SUCCESS;
                               case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
                                 *value = static_cast<int>(info.local_bytes);
                                 return CUDA_SUCCESS;
                               case CU_FUNC_ATTRIBUTE_NUM_REGS:
                                 *value = static_cast<int>(info.num_registers);
                                 return CUDA_SUCCESS;
                               case CU_FUNC_ATTRIBUTE_PTX_VERSION:
                                 *value = found->ptx_version;
                                 return CUDA_SUCCESS;
                               case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
                                 *value = Capability(call.context->device);
                                 return CUDA_SUCCESS;
                               default:
                                 return CUDA_ERROR_INVALID_VALUE;
                             }
                           });
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset,
                            size_t* size) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuFuncGetParamInfo), kNeedsContext,
      [&](Call& call) -> CUresult {
        const auto found = FindFunction(FromHandle(function));
        if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (offset == nullptr || index >= found->info.parameters.size()) {
          return CUDA_ERROR_INVALID_VALUE;
        }
        *offset = found->info.parameters[index].offset_bytes;
        if (size != nullptr) {
          *size = found->info.parameters[index].size_bytes;
        }
        return CUDA_SUCCESS;
      });
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x,
                        unsigned int grid_y, unsigned int grid_z,
                        unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes,
                        CUstream stream, void** parameters, void** extra) {
  return Driver::Get().Run(
      DATASETD_SYMBOL(cuLaunchKernel), kNeedsContext,
      [&](Call& call) -> CUresult {
        const auto found = FindFunction(FromHandle(function));
        const auto on = Driver::Get().FindStream(call, stream);
        if (found == nullptr || on == nullptr ||
            found->module->context != call.context ||
            &on->context() != call.context) {
          return CUDA_ERROR_INVALID_HANDLE;
        }
        call.detail = found->info.name;
        KernelLaunch launch = {.grid = {grid_x, grid_y, grid_z},
                               .block = {block_x, block_y, block_z},
                               .dynamic_shared_bytes = shared_bytes};
        CUresult result = CheckShape(found->info, launch);
        if (result == CUDA_SUCCESS) {
          result = ReadParameters(found->info, parameters, extra,
                                  &launch.parameters);
        }
        if (result != CUDA_SUCCESS) return result;
        if (!GrowLocalMemory(*call.context, found->info)) {
          call.detail += ": no memory for its stack";
          return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return Launch(call, found, *on, std::move(launch));
      });
}

}  // extern "C"

}  // namespace datasetd::emulated_driver
