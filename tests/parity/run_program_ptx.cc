#include <vector>

#include "absl/status/status.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/emulated_gpu/kernels/kernel_module.h"
#include "tests/emulated_gpu/kernels/ptx_launch.h"
#include "tests/parity/run_program.h"

namespace datasetd {

// Chains first, as AugmentKernels::Launch.
absl::Status RunProgram(const AugmentProgram& program, const BatchTask& batch,
                        const std::vector<testing::MemoryRange>& memory) {
  for (const auto launch :
       {&emulated_gpu::LaunchChainKernel, &emulated_gpu::LaunchAugmentKernel}) {
    const auto result =
        launch(emulated_gpu::AugmentModule(), {}, program, {batch}, memory);
    if (!result.ok()) return result.status();
    if (result->has_value() && (*result)->fault.has_value()) {
      return absl::InternalError((*result)->fault->ToString());
    }
  }
  return absl::OkStatus();
}

}  // namespace datasetd
