// Fills a batch for apply_ops: on the host, or by the kernels' PTX. A binary
// links one of the two.

#ifndef DATASETD_TESTS_PARITY_RUN_PROGRAM_H_
#define DATASETD_TESTS_PARITY_RUN_PROGRAM_H_

#include <vector>

#include "absl/status/status.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"

namespace datasetd {

// `memory` is all that the executor may touch but the program. INTERNAL: a
// fault of a kernel.
absl::Status RunProgram(const AugmentProgram& program, const BatchTask& batch,
                        const std::vector<testing::MemoryRange>& memory);

}  // namespace datasetd

#endif  // DATASETD_TESTS_PARITY_RUN_PROGRAM_H_
