// Runs the rows of a batch one by one on a host thread. A template over the
// executor, as in chain_lanes.h.

#ifndef DATASETD_CUDA_KERNELS_CHAIN_CHAIN_ROWS_H_
#define DATASETD_CUDA_KERNELS_CHAIN_CHAIN_ROWS_H_

#include <cstdint>

#include "cuda/kernels/program/host_checkpoint.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

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

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_CHAIN_CHAIN_ROWS_H_
