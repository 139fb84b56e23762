// Arguments of one launch of the chain kernel.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_CHAIN_PLAN_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_CHAIN_PLAN_H_

#include <cstdint>

#include "cuda/kernels/program/params.h"

namespace datasetd {

// Threads of a block of the chain kernel, at most and of all blocks that a
// multiprocessor runs at once, of which registers are the limit.
inline constexpr int kMaxChainThreads = 256;
inline constexpr int kResidentChainThreads = 512;

// Returns the threads of a block for samples that need `team_bytes` of scratch
// memory. What each warp does once for a sample is most of the work for small
// images, so that these have blocks of two warps.
inline int ChainThreads(int64_t team_bytes) {
  return team_bytes <= 128 << 10 ? 64 : kMaxChainThreads;
}

// FieldProgram::operations of a strip, at least. Each strip draws the sample
// and makes its taps again, which is then an eighth of the work at most.
inline constexpr int64_t kMinStripOperations = 780'000;

// The kernel's parameter, passed by value. The blocks take the strips of the
// samples of all batches in turn.
struct ChainPlan {
  const AugmentProgram* program;  // readable by the kernel
  int32_t num_batches;
  // By field: the strips of rows that blocks make of a sample, each on its own.
  // More than one if the launch has fewer samples than teams. Of a sample of
  // several passes, each of which needs all of the one before, the first strip
  // is all rows, and the others are empty.
  int32_t num_strips[kMaxFields];
  BatchTask batches[kMaxBatchesPerLaunch];
};

// Kernel parameters are at most 4 KiB.
static_assert(sizeof(ChainPlan) <= 4096);

// Fills `plan` and returns the number of blocks, at most program.num_teams; 0:
// there is nothing to do. REQUIRES: at most kMaxBatchesPerLaunch batches.
int64_t MakeChainPlan(const AugmentProgram* device_program,
                      const AugmentProgram& host_program,
                      const BatchTask* batches, int num_batches,
                      ChainPlan* plan);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_CHAIN_PLAN_H_
