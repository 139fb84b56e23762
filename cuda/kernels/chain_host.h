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

// Whether the processor has what a build needs: AVX2; AVX-512 F, BW, DQ and VL.
bool HasChainAvx2();
bool HasChainAvx512();

// The builds of the chain: the same bits.
void RunChainPlain(const AugmentProgram& program, const FieldProgram& field,
                   const BatchTask& batch, const ChainMemory& memory);
// REQUIRES: HasChainAvx2().
void RunChainAvx2(const AugmentProgram& program, const FieldProgram& field,
                  const BatchTask& batch, const ChainMemory& memory);
// REQUIRES: HasChainAvx512().
void RunChainAvx512(const AugmentProgram& program, const FieldProgram& field,
                    const BatchTask& batch, const ChainMemory& memory);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_HOST_H_
