// The workloads of docs/kernel-cost.md.

#ifndef DATASETD_TESTS_BENCHMARKS_KERNEL_COST_WORKLOADS_H_
#define DATASETD_TESTS_BENCHMARKS_KERNEL_COST_WORKLOADS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "cuda/kernels/program/params.h"
#include "server/pipeline/ops/transform.h"

namespace datasetd {

struct Workload {
  std::string name;
  // Of the square images of 3 channels, uint8; or of a waveform, int16, if the
  // last op is for sequences.
  int32_t size;
  int num_samples;
  Layout layout;
  Transforms ops;
  // For moves: the samples of the launch. Only the blocks of the first
  // num_samples are counted.
  int num_launched = 0;
};

std::vector<Workload> CostWorkloads();

// Compiles for samples without gaps; `source` stays 0.
absl::StatusOr<FieldProgram> Compile(const Workload& workload);

// Returns how much of a sample's bytes a compiled workload reads, the mean of
// 1,000 samples: what its first op crops away is not read.
absl::StatusOr<double> ReadShare(const FieldProgram& field);

}  // namespace datasetd

#endif  // DATASETD_TESTS_BENCHMARKS_KERNEL_COST_WORKLOADS_H_
