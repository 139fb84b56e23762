// Runs the rows of a batch one by one on a host thread. A template over the
// executor, as in chain_lanes.h.

#if defined(DATASETD_CUDA_KERNELS_CHAIN_CHAIN_ROWS_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_ROWS_H_
#undef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_ROWS_H_
#else
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_ROWS_H_
#endif

#include <cstdint>

#include "cuda/kernels/chain/team_namespace.h"
#include "cuda/kernels/program/host_checkpoint.h"
#include "cuda/kernels/program/params.h"

DATASETD_BEFORE_NAMESPACE();
namespace DATASETD_TEAM_NAMESPACE {

// Runs the rows of the batch's part. Returns the next row: past the last one,
// or earlier if the run EndsAtSample.
template <typename Executor>
int32_t RunRows(Executor& executor, const BatchTask& batch) {
  const int32_t end = batch.first_row + NumRows(batch);
  for (int32_t row = batch.first_row; row < end;) {
    if (!executor.Run(batch, row)) return end;
    if (++row < end && EndsAtSample()) return row;
  }
  return end;
}

}  // namespace DATASETD_TEAM_NAMESPACE
DATASETD_AFTER_NAMESPACE();

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_ROWS_H_
