// The order of samples: which index stands at which place of which batch.
//
// A function of (options, epoch, batch) and of nothing else. The global order
// of an epoch is the identity, or a permutation keyed by (seed, epoch): up to
// kMaxTableSize samples a Philox-driven Fisher-Yates table, above it a keyed
// bijection computed per position (cuda/kernels/permutation.h). Rank r of w
// takes positions r, r + w, ... of it, padded by wrapping (or cut, with
// drop_last) so that all ranks get equally many samples, as torch's
// DistributedSampler does; batches are cut from these, the last one short
// unless drop_last.
//
// Not thread-safe. Allocates only in Create: two tables, for this epoch and
// the next.

#ifndef DATASETD_SERVER_CORE_SAMPLER_H_
#define DATASETD_SERVER_CORE_SAMPLER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace datasetd {

struct SamplerOptions {
  int64_t num_samples = 0;
  int64_t batch_size = 0;
  bool shuffle = false;
  bool drop_last = false;
  uint64_t seed = 0;
  int64_t rank = 0;
  int64_t world_size = 1;
};

class Sampler {
 public:
  static constexpr int64_t kMaxTableSize = 65536;

  //   INVALID_ARGUMENT  names the option that is out of range
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(
      const SamplerOptions& options);
  ~Sampler();

  // The same for every rank and epoch; 0 is legal.
  int64_t batches_per_epoch() const;

  struct BatchShape {
    int64_t num_samples = 0;  // 1..batch_size
    int64_t num_padding = 0;  // the last rows, wrapped around
  };
  // REQUIRES: 0 <= batch < batches_per_epoch().
  BatchShape Shape(int64_t batch) const;

  // Writes the sample indices of a batch to the first num_samples of
  // `indices`, whose size is at least batch_size; returns its shape.
  // Costs O(num_samples); the first batch of an epoch with a table that was
  // not prepared costs O(N). REQUIRES as above.
  BatchShape Fill(uint64_t epoch, int64_t batch,
                  absl::Span<int64_t> indices);

  // Makes the table of `epoch` ahead, where tables are used.
  void Prepare(uint64_t epoch);

 private:
  class Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_SAMPLER_H_
