// Runs chains on the host.

#ifndef DATASETD_CUDA_KERNELS_HOST_CHAIN_HOST_H_
#define DATASETD_CUDA_KERNELS_HOST_CHAIN_HOST_H_

#include "cuda/kernels/host/host_targets.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

struct ChainMemory;  // chain_state.h

// Runs the chain `field` of `program` for one batch or part on the calling
// thread, with the scratch memory of a free team. Returns the next row: past
// the last one, or earlier if the thread's run EndsAtSample
// (host_checkpoint.h). Thread-safe for batches that do not overlap; if there
// are more threads than teams, threads wait. REQUIRES: program.scratch, whose
// flags are 0 while no thread runs a chain.
int32_t RunChainHost(const AugmentProgram& program, const FieldProgram& field,
                     const BatchTask& batch);

// RunChainHost with the instructions of `target`, in memory that no other
// thread uses. REQUIRES: `target` is one of HostTargets().
int32_t RunChainOn(HostTarget target, const AugmentProgram& program,
                   const FieldProgram& field, const BatchTask& batch,
                   const ChainMemory& memory);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_CHAIN_HOST_H_
