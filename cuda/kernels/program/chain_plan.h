// What one launch of the chain kernel is given.

#ifndef DATASETD_CUDA_KERNELS_PROGRAM_CHAIN_PLAN_H_
#define DATASETD_CUDA_KERNELS_PROGRAM_CHAIN_PLAN_H_

#include <cstdint>

#include "cuda/kernels/program/params.h"

namespace datasetd {

inline constexpr int kChainThreads = 256;

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
