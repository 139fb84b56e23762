#include <vector>

#include "absl/status/status.h"
#include "cuda/kernels/program/augment.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"
#include "tests/parity/run_program.h"

namespace datasetd {

absl::Status RunProgram(const AugmentProgram& program, const BatchTask& batch,
                        const std::vector<testing::MemoryRange>& memory) {
  AugmentHost(program, batch);
  return absl::OkStatus();
}

}  // namespace datasetd
