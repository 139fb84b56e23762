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
  // Of the square images of 3 channels, uint8; or if is_waveform of a waveform,
  // int16, from which AddNoise takes its noise, too.
  int32_t size;
  int num_samples;
  Layout layout = Layout::kNchw;
  Transforms ops;
  // For moves: the samples of the launch. Only the blocks of the first
  // num_samples are counted.
  int num_launched = 0;
  bool is_waveform = false;
  int32_t crop_length = 0;  // of a random crop; 0: none
};

std::vector<Workload> CostWorkloads();

// Compiles for samples without gaps; `source` stays 0.
absl::StatusOr<FieldProgram> Compile(const Workload& workload);

// Sets the source of the samples, and of noise.
void SetSource(const uint8_t* source, FieldProgram* field);

// Returns how much of a sample's bytes a compiled workload reads, the mean of
// 1,000 samples: what its first op crops away is not read. Noise is read, too.
absl::StatusOr<double> ReadShare(const FieldProgram& field);

}  // namespace datasetd

#endif  // DATASETD_TESTS_BENCHMARKS_KERNEL_COST_WORKLOADS_H_
