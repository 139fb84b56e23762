// Runs the blocks of the CUDA kernels. A test links one of three executors:
// block_runs_host, the kernels' code built for the host;
// //tests/emulated_gpu/kernels:block_runs_ptx, the PTX that nvcc makes of them;
// or block_runs_cuda, the kernels on a GPU.

#ifndef DATASETD_TESTS_CUDA_KERNELS_BLOCK_RUNS_H_
#define DATASETD_TESTS_CUDA_KERNELS_BLOCK_RUNS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "cuda/kernels/program/params.h"

namespace datasetd::testing {

// Memory that the kernel may touch.
struct MemoryRange {
  const void* data = nullptr;
  int64_t size_bytes = 0;
  bool may_write = false;
};

// How often each byte of a slot is stored, by the slot's address.
using StoreCounts = std::map<const uint8_t*, std::vector<uint8_t>>;

// Runs AugmentKernel for one launch of `batches`. `memory` is all that it needs
// but the program and the batches. Fills `counts`, which has the slots' sizes,
// and returns true, if the executor can count; else the PTX executor has
// checked that no two threads store the same byte, and a GPU cannot tell.
// Failures are reported to GoogleTest.
bool RunAugmentBlocks(const AugmentProgram& program,
                      const std::vector<BatchTask>& batches,
                      const std::vector<MemoryRange>& memory,
                      StoreCounts* counts);

// Runs the chain of `field_index`, the only one of the program, for a batch as
// a block of `num_ranks` threads, or several, by `num_strips` of each sample. A
// GPU makes as many strips as it wants.
void RunChainBlocks(const AugmentProgram& program, int field_index,
                    const BatchTask& batch,
                    const std::vector<MemoryRange>& memory, int num_ranks,
                    int num_strips = 1);

// The numbers of threads that RunChainBlocks can run. A GPU runs a chain by
// more, whatever is asked for, if it needs the memory.
std::vector<int> ChainBlockSizes();

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CUDA_KERNELS_BLOCK_RUNS_H_
