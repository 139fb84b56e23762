#include <cstdint>

#include "cuda/kernels/chain/chain_executor.h"
#include "cuda/kernels/chain/chain_scratch.h"
#include "cuda/kernels/chain/chain_state.h"
#include "cuda/kernels/chain/sequence_executor.h"
#include "cuda/kernels/moves/augment_block.h"
#include "cuda/kernels/moves/block_state.h"
#include "cuda/kernels/moves/stage_block.h"
#include "cuda/kernels/ops/atomics.h"
#include "cuda/kernels/program/augment_plan.h"
#include "cuda/kernels/program/chain_plan.h"
#include "cuda/kernels/program/params.h"
#include "cuda/kernels/program/stage_copy.h"

// The kernels, found by their names in the module
// (cuda/device/augment_kernels.h). Each does nothing for a plan without
// batches, or without copies.

namespace datasetd {
namespace {

// Keeps registers, not shared memory, the limit of blocks per SM.
static_assert(sizeof(BlockState) <= 24 * 1024);

// The threads of a block.
struct BlockTeam {
  using Atomics = BlockAtomics;

  static constexpr int kLanes = 4;
  static constexpr int kGroup = 4;
  static constexpr bool kHasVectors = false;
  static constexpr int64_t kRowElements = INT32_MAX;

  static __device__ int rank() { return static_cast<int>(threadIdx.x); }
  static __device__ int size() { return static_cast<int>(blockDim.x); }
  __device__ void Sync() const { __syncthreads(); }
  static __device__ constexpr bool GoesOn() { return true; }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(kBlockThreads, 4)
    AugmentKernel(const __grid_constant__ AugmentPlan plan) {
  __shared__ BlockState state;
  if (plan.num_batches == 0) return;
  const int thread = static_cast<int>(threadIdx.x);
  LocateBlock(plan, blockIdx.x, thread, state);
  __syncthreads();
  LoadBlock(plan, thread, state);
  __syncthreads();
  DrawBlock(plan, thread, state);
  __syncthreads();
  MapBlock(plan, thread, state);
  __syncthreads();
  WriteBlock(plan, thread, state, MemorySink());
}

// Blocks take the strips of the samples of all batches in turn, each with the
// scratch memory of its own index.
extern "C" __global__ void __launch_bounds__(kMaxChainThreads,
                                             kResidentChainThreads /
                                                 kMaxChainThreads)
    ChainKernel(const __grid_constant__ ChainPlan plan) {
  __shared__ ChainState state;
  if (plan.num_batches == 0) return;
  const AugmentProgram& program = *plan.program;
  const int block = static_cast<int>(blockIdx.x);
  for (int f = 0; f < program.num_fields; ++f) {
    const FieldProgram& field = program.fields[f];
    if (field.num_steps == 0 || !field.is_image) continue;
    ChainExecutor<BlockTeam> executor(
        {}, program, field, TeamMemory(program, field, block), &state);
    const auto strips = static_cast<uint32_t>(plan.num_strips[f]);
    int64_t turn = block;
    for (int b = 0; b < plan.num_batches; ++b) {
      const BatchTask& batch = plan.batches[b];
      const int64_t turns = int64_t{NumRows(batch)} * strips;
      for (; turn < turns; turn += gridDim.x) {
        // Where there are several strips, there are at most as many as teams.
        const auto at = static_cast<uint32_t>(turn);
        executor.SetStrip(
            {static_cast<int32_t>(at % strips), static_cast<int32_t>(strips)});
        const int32_t row = batch.first_row + static_cast<int32_t>(at / strips);
        if (IsOwnRow(program.mixture, batch, row)) executor.Run(batch, row);
      }
      turn -= turns;
    }
  }
}

// The same for fields of numbers, of which a sample is one strip.
extern "C" __global__ void __launch_bounds__(kMaxChainThreads,
                                             kResidentChainThreads /
                                                 kMaxChainThreads)
    SequenceKernel(const __grid_constant__ ChainPlan plan) {
  __shared__ ChainState state;
  if (plan.num_batches == 0) return;
  const AugmentProgram& program = *plan.program;
  const int block = static_cast<int>(blockIdx.x);
  for (int f = 0; f < program.num_fields; ++f) {
    const FieldProgram& field = program.fields[f];
    if (field.num_steps == 0 || field.is_image) continue;
    SequenceExecutor<BlockTeam> executor(
        {}, program, field, TeamMemory(program, field, block), &state);
    int64_t turn = block;
    for (int b = 0; b < plan.num_batches; ++b) {
      const BatchTask& batch = plan.batches[b];
      const int64_t turns = NumRows(batch);
      for (; turn < turns; turn += gridDim.x) {
        const int32_t row = batch.first_row + static_cast<int32_t>(turn);
        if (IsOwnRow(program.mixture, batch, row)) executor.Run(batch, row);
      }
      turn -= turns;
    }
  }
}

// Blocks take the copies in turn.
extern "C" __global__ void __launch_bounds__(kStageThreads)
    StageKernel(const __grid_constant__ StagePlan plan) {
  for (int64_t i = blockIdx.x; i < plan.num_copies; i += gridDim.x) {
    StageOne(plan.copies[i], static_cast<int>(threadIdx.x));
  }
}

}  // namespace datasetd
