// The map of one axis as runs: ranges of output that come from consecutive
// input coordinates, ascending or descending, from a single one, or from one
// fill.

#ifndef DATASETD_CUDA_KERNELS_HOST_COLUMN_RUNS_H_
#define DATASETD_CUDA_KERNELS_HOST_COLUMN_RUNS_H_

#include <cstdint>

#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"

namespace datasetd {

// Stores MapBack of output coordinates first .. first + count - 1.
void MapAxis(const FieldProgram& field, const AxisMove* drawn, int32_t first,
             int32_t count, int32_t* map);

struct ColumnRun {
  int32_t begin;  // within the map
  int32_t length;
  int32_t entry;  // of the first element: input coordinate or fill
  int32_t step;   // 1, -1 or 0 from element to element
};

// Writes the runs of `map` in order and returns their number, at most `count`.
int FindRuns(const int32_t* map, int32_t count, ColumnRun* runs);

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_COLUMN_RUNS_H_
