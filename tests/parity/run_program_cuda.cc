#include <vector>

#include "absl/status/status.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/cuda/kernels/cuda_launch.h"
#include "tests/parity/run_program.h"

namespace datasetd {

absl::Status RunProgram(const AugmentProgram& program, const BatchTask& batch,
                        const std::vector<testing::MemoryRange>& memory) {
  if (!testing::FirstGpu().ok()) return testing::FirstGpu().status();
  return testing::LaunchOnGpu(**testing::FirstGpu(), program, {batch}, memory);
}

}  // namespace datasetd
