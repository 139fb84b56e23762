// Fills a batch for apply_ops: on the host, by the kernels' PTX, or on a GPU. A
// binary links one of the three.

#ifndef DATASETD_TESTS_PARITY_RUN_PROGRAM_H_
#define DATASETD_TESTS_PARITY_RUN_PROGRAM_H_

#include <vector>

#include "absl/status/status.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"

namespace datasetd {

// `memory` is all that the executor may touch but the program. INTERNAL: a
// fault of a kernel. On a GPU, errors are the backend's.
absl::Status RunProgram(const AugmentProgram& program, const BatchTask& batch,
                        const std::vector<testing::MemoryRange>& memory);

}  // namespace datasetd

#endif  // DATASETD_TESTS_PARITY_RUN_PROGRAM_H_
