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

// The kernel's parameter, passed by value. The blocks, at most
// program.num_teams, take the samples of all batches in turn.
struct ChainPlan {
  const AugmentProgram* program;  // readable by the kernel
  int32_t num_batches;
  BatchTask batches[kMaxBatchesPerLaunch];
};

// Kernel parameters are at most 4 KiB.
static_assert(sizeof(ChainPlan) <= 4096);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_PROGRAM_CHAIN_PLAN_H_
