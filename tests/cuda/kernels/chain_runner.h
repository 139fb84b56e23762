// Runs the program of one image field on one image: for each of the
// host's targets, and as a CUDA block does (block_runs.h).

#ifndef DATASETD_TESTS_CUDA_KERNELS_CHAIN_RUNNER_H_
#define DATASETD_TESTS_CUDA_KERNELS_CHAIN_RUNNER_H_

#include <cstdint>
#include <vector>

#include "cuda/kernels/host/host_targets.h"
#include "cuda/kernels/program/params.h"

namespace datasetd::testing {

struct ChainResult {
  // Elements as the program writes them: its layout and out_dtype.
  std::vector<uint8_t> bytes;

  // REQUIRES: out_dtype float32 or uint8.
  std::vector<float> Floats(const FieldProgram& field) const;
};

class ChainRunner {
 public:
  // `image` is [H, W, C] of field.in_dtype. AddNoise takes its noise from the
  // same bytes.
  ChainRunner(const FieldProgram& field, std::vector<uint8_t> image,
              uint64_t seed = 5);
  // For a ragged field: sample i is at ragged[i] in `packed`.
  ChainRunner(const FieldProgram& field, std::vector<uint8_t> packed,
              std::vector<RaggedSample> ragged, uint64_t seed = 5);

  // Runs sample `sample`; all samples are the one image.
  ChainResult Host(uint64_t epoch = 0, int64_t sample = 0) const;
  // Runs a batch of samples.
  ChainResult Host(uint64_t epoch, const std::vector<int64_t>& samples) const;
  // REQUIRES: `target` is one of HostTargets().
  ChainResult On(HostTarget target, uint64_t epoch = 0,
                 int64_t sample = 0) const;
  ChainResult Ranks(int num_ranks, uint64_t epoch = 0,
                    int64_t sample = 0) const;
  ChainResult Ranks(int num_ranks, uint64_t epoch,
                    const std::vector<int64_t>& samples,
                    int num_strips = 1) const;

  // Host, after checking that all ways have the same bits.
  ChainResult All(uint64_t epoch = 0, int64_t sample = 0) const;

  const AugmentProgram& program() const { return program_; }

 private:
  void UseOwnNoise();

  template <typename Run>
  ChainResult With(uint64_t epoch, const std::vector<int64_t>& samples,
                   const Run& run, int num_teams = 1) const;

  AugmentProgram program_ = {};
  std::vector<uint8_t> image_;
  std::vector<RaggedSample> ragged_;
};

}  // namespace datasetd::testing

#endif  // DATASETD_TESTS_CUDA_KERNELS_CHAIN_RUNNER_H_
