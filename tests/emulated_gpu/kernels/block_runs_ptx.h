// How block_runs_ptx runs kernels, for tests that want more than the results.

#ifndef DATASETD_TESTS_EMULATED_GPU_KERNELS_BLOCK_RUNS_PTX_H_
#define DATASETD_TESTS_EMULATED_GPU_KERNELS_BLOCK_RUNS_PTX_H_

#include <functional>

#include "tests/emulated_gpu/ptx/execute.h"
#include "tests/emulated_gpu/ptx/module.h"

namespace datasetd::testing {

struct PtxLaunches {
  // nullptr: AugmentModule().
  const emulated_gpu::Module* module = nullptr;
  // Grid and block are set for each launch.
  emulated_gpu::LaunchConfig config;
  // Gets each result. Empty: a fault is a failure of the test.
  std::function<void(const emulated_gpu::LaunchResult&)> on_result;
};

// Those of this process. Not thread-safe.
PtxLaunches& TestPtxLaunches();

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_EMULATED_GPU_KERNELS_BLOCK_RUNS_PTX_H_
