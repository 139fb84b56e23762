// Runs kernels. The emulated driver finds the PTX of a module, and gives it to
// the engine that is linked in.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_KERNEL_ENGINE_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_KERNEL_ENGINE_H_

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulated_gpu/address_space.h"

namespace datasetd::emulated_driver {

struct KernelParameter {
  uint32_t offset_bytes = 0;
  uint32_t size_bytes = 0;
};

struct KernelInfo {
  std::string name;
  std::vector<KernelParameter> parameters;
  uint32_t shared_bytes = 0;
  // Per thread, for its stack and its local arrays.
  uint32_t local_bytes = 0;
  uint32_t num_registers = 0;
  // Per block; 0 if the kernel sets no limit of its own.
  uint32_t max_threads = 0;
};

struct KernelLaunch {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared_bytes = 0;
  std::vector<uint8_t> parameters;
};

// The result of a launch: CUDA_SUCCESS, or the sticky error that a GPU would
// report, and what was found.
struct KernelOutcome {
  CUresult result = CUDA_SUCCESS;
  std::string message;
};

// Immutable; several streams may launch at once.
class KernelModule {
 public:
  virtual ~KernelModule() = default;
  virtual const std::vector<KernelInfo>& kernels() const = 0;
  virtual KernelOutcome Launch(const std::string& kernel,
                               const KernelLaunch& launch,
                               emulated_gpu::AddressSpace& memory) const = 0;
};

// nullptr for PTX that it cannot run; `why` names the line.
std::shared_ptr<const KernelModule> LoadKernels(const std::string& ptx,
                                                std::string* why);

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_KERNEL_ENGINE_H_
