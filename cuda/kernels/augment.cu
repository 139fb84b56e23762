#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/kernels/augment.h"
#include "cuda/kernels/augment_block.h"
#include "cuda/kernels/augment_plan.h"
#include "cuda/kernels/chain_executor.h"
#include "cuda/kernels/chain_scratch.h"
#include "cuda/kernels/chain_state.h"
#include "cuda/kernels/ops/atomics.h"
#include "cuda/kernels/params.h"

namespace datasetd {
namespace {

// So that shared memory never keeps more blocks off an SM than registers do.
static_assert(sizeof(BlockState) <= 24 * 1024);

__global__ void __launch_bounds__(kBlockThreads, 4)
    AugmentKernel(const __grid_constant__ AugmentPlan plan) {
  __shared__ BlockState state;
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

inline constexpr int kChainThreads = 512;

// The threads of a block.
struct BlockTeam {
  using Atomics = BlockAtomics;

  static constexpr int kLanes = 1;
  static constexpr int kGroup = 1;
  static constexpr int64_t kRowElements = INT32_MAX;
  static constexpr bool kTakesRowsInTurn = false;

  static __device__ int rank() { return static_cast<int>(threadIdx.x); }
  static __device__ int size() { return kChainThreads; }
  __device__ void Sync() const { __syncthreads(); }
  static __device__ constexpr bool GoesOn() { return true; }
};

// The kernel's parameter, passed by value.
struct ChainPlan {
  const AugmentProgram* program;
  int32_t num_batches;
  BatchTask batches[kMaxBatchesPerLaunch];
};
static_assert(sizeof(ChainPlan) <= 4096);

// Blocks take the samples of all batches in turn, each with the scratch memory
// of its own index.
__global__ void __launch_bounds__(kChainThreads, 2)
    ChainKernel(const __grid_constant__ ChainPlan plan) {
  __shared__ ChainState state;
  const AugmentProgram& program = *plan.program;
  const int block = static_cast<int>(blockIdx.x);
  for (int f = 0; f < program.num_fields; ++f) {
    const FieldProgram& field = program.fields[f];
    if (field.num_steps == 0) continue;
    ChainExecutor<BlockTeam> executor({}, program, field,
                                      TeamMemory(program, field, block),
                                      &state);
    int64_t turn = block;
    for (int b = 0; b < plan.num_batches; ++b) {
      const BatchTask& batch = plan.batches[b];
      const int32_t rows = NumRows(batch);
      for (; turn < rows; turn += gridDim.x) {
        executor.Run(batch, batch.first_row + static_cast<int32_t>(turn));
      }
      turn -= rows;
    }
  }
}

int LaunchChains(const AugmentProgram* device_program,
                 const AugmentProgram& host_program, const BatchTask* batches,
                 int num_batches, cudaStream_t stream) {
  bool has_chain = false;
  for (int i = 0; i < host_program.num_fields; ++i) {
    has_chain = has_chain || host_program.fields[i].num_steps > 0;
  }
  if (!has_chain) return cudaSuccess;
  ChainPlan plan = {};
  plan.program = device_program;
  plan.num_batches = num_batches;
  int64_t num_samples = 0;
  for (int b = 0; b < num_batches; ++b) {
    plan.batches[b] = batches[b];
    num_samples += NumRows(batches[b]);
  }
  const int64_t blocks = num_samples < host_program.num_teams
                             ? num_samples
                             : host_program.num_teams;
  if (blocks == 0) return cudaSuccess;
  void* arguments[] = {&plan};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&ChainKernel),
                          dim3(static_cast<uint32_t>(blocks)),
                          dim3(kChainThreads), arguments, 0, stream);
}

}  // namespace

int LaunchAugment(const AugmentProgram* device_program,
                  const AugmentProgram& host_program, const BatchTask* batches,
                  int num_batches, void* stream) {
  AugmentPlan plan;
  if (!MakeAugmentPlan(device_program, host_program, batches, num_batches,
                       &plan)) {
    return cudaErrorInvalidValue;
  }
  const cudaStream_t cuda_stream = static_cast<cudaStream_t>(stream);
  if (const int error = LaunchChains(device_program, host_program, batches,
                                     num_batches, cuda_stream);
      error != cudaSuccess) {
    return error;
  }
  if (plan.num_blocks() == 0) return cudaSuccess;
  void* arguments[] = {&plan};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&AugmentKernel),
                          dim3(plan.num_blocks()), dim3(kBlockThreads),
                          arguments, 0, cuda_stream);
}

}  // namespace datasetd
