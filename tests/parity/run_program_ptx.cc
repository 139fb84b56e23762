#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/emulated_gpu/kernels/kernel_module.h"
#include "tests/emulated_gpu/kernels/ptx_launch.h"
#include "tests/parity/run_program.h"

namespace datasetd {

namespace {

absl::Status StatusOf(
    const absl::StatusOr<std::optional<emulated_gpu::LaunchResult>>& result) {
  if (!result.ok()) return result.status();
  if (!result->has_value() || !(*result)->fault.has_value()) {
    return absl::OkStatus();
  }
  return absl::InternalError((*result)->fault->ToString());
}

}  // namespace

// Chains first, as AugmentKernels::Launch.
absl::Status RunProgram(const AugmentProgram& program, const BatchTask& batch,
                        const std::vector<testing::MemoryRange>& memory) {
  const emulated_gpu::Module& module = emulated_gpu::AugmentModule();
  DATASETD_RETURN_IF_ERROR(StatusOf(
      emulated_gpu::LaunchChainKernel(module, {}, program, {batch}, memory)));
  return StatusOf(
      emulated_gpu::LaunchAugmentKernel(module, {}, program, {batch}, memory));
}

}  // namespace datasetd
