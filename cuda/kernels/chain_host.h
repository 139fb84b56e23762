// Chains on the host.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_HOST_H_
#define DATASETD_CUDA_KERNELS_CHAIN_HOST_H_

#include "cuda/kernels/params.h"

namespace datasetd {

struct ChainMemory;  // chain_state.h

// Runs a chain of `program`, `field`, for one batch on the calling thread, with
// the scratch memory of a free team. REQUIRES: program.scratch, with its flags
// 0 while no thread is here. Thread-safe for batches that do not overlap; more
// threads than teams wait for each other.
void RunChainHost(const AugmentProgram& program, const FieldProgram& field,
                  const BatchTask& batch);

// True where the processor has AVX2.
bool HasChainVector();

// The two builds of the chain: with AVX2, and without. The same bits.
// REQUIRES: of RunChainVector, HasChainVector().
void RunChainVector(const AugmentProgram& program, const FieldProgram& field,
                    const BatchTask& batch, const ChainMemory& memory);
void RunChainScalar(const AugmentProgram& program, const FieldProgram& field,
                    const BatchTask& batch, const ChainMemory& memory);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_HOST_H_
