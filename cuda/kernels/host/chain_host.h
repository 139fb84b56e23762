// Chains on the host.

#ifndef DATASETD_CUDA_KERNELS_HOST_CHAIN_HOST_H_
#define DATASETD_CUDA_KERNELS_HOST_CHAIN_HOST_H_

#include "cuda/kernels/program/params.h"

namespace datasetd {

struct ChainMemory;  // chain_state.h

// Runs a chain of `program`, `field`, for one batch, or the part of it, on the
// calling thread, with the scratch memory of a free team. Returns the row where
// it stopped: behind the last one, or before if the thread's run EndsAtSample
// (host_checkpoint.h). REQUIRES: program.scratch, with its flags 0 while no
// thread is here. Thread-safe for batches that do not overlap; more threads
// than teams wait for each other.
int32_t RunChainHost(const AugmentProgram& program, const FieldProgram& field,
                     const BatchTask& batch);

// Whether the processor has what a build needs: AVX2; AVX-512 F, BW, DQ and VL.
bool HasChainAvx2();
bool HasChainAvx512();

// The builds of the chain: the same bits. They return what RunChainHost does.
int32_t RunChainPlain(const AugmentProgram& program, const FieldProgram& field,
                      const BatchTask& batch, const ChainMemory& memory);
// REQUIRES: HasChainAvx2().
int32_t RunChainAvx2(const AugmentProgram& program, const FieldProgram& field,
                     const BatchTask& batch, const ChainMemory& memory);
// REQUIRES: HasChainAvx512().
int32_t RunChainAvx512(const AugmentProgram& program, const FieldProgram& field,
                       const BatchTask& batch, const ChainMemory& memory);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_CHAIN_HOST_H_
