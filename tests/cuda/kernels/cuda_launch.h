// Launches a program on a GPU as the daemon does, over copies of its memory.

#ifndef DATASETD_TESTS_CUDA_KERNELS_CUDA_LAUNCH_H_
#define DATASETD_TESTS_CUDA_KERNELS_CUDA_LAUNCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/backend/backend.h"
#include "cuda/kernels/program/params.h"
#include "tests/cuda/kernels/block_runs.h"

namespace datasetd::testing {

// Returns cuda:0, made at the first call, or why there is none.
const absl::StatusOr<Backend*>& FirstGpu();

// Runs one launch of `batches` and waits for it. `program` and `batches` point
// into `memory`, on the host, which is copied to the GPU, each range with its
// address modulo 256; what may be written is copied back. Scratch memory is
// not: it is made anew, filled with NaNs, with `team_bytes` for each team if
// the program asks for less. Errors are the backend's.
absl::Status LaunchOnGpu(Backend& gpu, const AugmentProgram& program,
                         const std::vector<BatchTask>& batches,
                         const std::vector<MemoryRange>& memory,
                         int64_t team_bytes = 0);

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CUDA_KERNELS_CUDA_LAUNCH_H_
