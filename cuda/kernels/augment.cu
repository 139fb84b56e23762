#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/kernels/augment.h"
#include "cuda/kernels/augment_block.h"
#include "cuda/kernels/augment_plan.h"
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

}  // namespace

int LaunchAugment(const AugmentProgram* device_program,
                  const AugmentProgram& host_program, const BatchTask* batches,
                  int num_batches, void* stream) {
  AugmentPlan plan;
  if (!MakeAugmentPlan(device_program, host_program, batches, num_batches,
                       &plan)) {
    return cudaErrorInvalidValue;
  }
  if (plan.num_blocks() == 0) return cudaSuccess;
  void* arguments[] = {&plan};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&AugmentKernel),
                          dim3(plan.num_blocks()), dim3(kBlockThreads),
                          arguments, 0, static_cast<cudaStream_t>(stream));
}

}  // namespace datasetd
