// Launches the project's kernels on the PTX executor, as AugmentKernels does on
// a GPU.

#ifndef DATASETD_TESTS_EMULATED_GPU_KERNELS_PTX_LAUNCH_H_
#define DATASETD_TESTS_EMULATED_GPU_KERNELS_PTX_LAUNCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/stage_copy.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/emulated_gpu/ptx/execute.h"
#include "tests/emulated_gpu/ptx/fault.h"
#include "tests/emulated_gpu/ptx/module.h"

namespace datasetd::emulated_gpu {

// Each runs one kernel of `module`; the kernel may touch `program` and `memory`
// and nothing else. `config` is taken but for grid and block. nullopt: there is
// nothing for the kernel to do. LaunchChainKernel runs SequenceKernel, too, if
// the program has chains of sequences. Errors are those of Execute.
// AugmentKernel runs at most its first `max_blocks` blocks; blocks of
// ChainKernel have `num_threads` and samples `num_strips`, unless given as many
// as on a GPU.
absl::StatusOr<std::optional<LaunchResult>> LaunchAugmentKernel(
    const Module& module, LaunchConfig config, const AugmentProgram& program,
    const std::vector<BatchTask>& batches,
    const std::vector<testing::MemoryRange>& memory,
    int64_t max_blocks = INT32_MAX);
absl::StatusOr<std::optional<LaunchResult>> LaunchChainKernel(
    const Module& module, LaunchConfig config, const AugmentProgram& program,
    const std::vector<BatchTask>& batches,
    const std::vector<testing::MemoryRange>& memory,
    std::optional<int> num_threads = std::nullopt,
    std::optional<int> num_strips = std::nullopt);

// Runs StageKernel, which may also read the list.
absl::StatusOr<std::optional<LaunchResult>> LaunchStageKernel(
    const Module& module, LaunchConfig config, int num_blocks,
    const std::vector<StageCopy>& copies,
    const std::vector<testing::MemoryRange>& memory);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_KERNELS_PTX_LAUNCH_H_
