// The order of samples: which index stands at which place of which batch.
//
// A function of (options, epoch, batch) and of nothing else. The global order
// of an epoch is the identity, or a permutation keyed by (seed, epoch): up to
// kMaxTableSize samples a Philox-driven Fisher-Yates table, above it a keyed
// bijection computed per position (cuda/kernels/math/permutation.h).
//
// Shards are those of torch's DistributedSampler. Rank r of w takes positions
// r, r + w, r + 2w, ... of the global order, and every rank gets equally many:
//   without drop_last  ceil(N / w); positions from N on are padding and wrap
//                      around: position p is that of p mod N
//   with drop_last     floor(N / w); the last N mod w positions are left out
// A rank's samples are then cut into batches of batch_size, as torch's
// BatchSampler does: the last one is short without drop_last, and left out
// with it. So with drop_last a batch_size above floor(N / w) gives no batch at
// all, which is legal.
//
// Padding is a matter of the last round of w positions only: a rank has at
// most one padding row in an epoch, the last row of its last batch, and with
// w > N the ranks from N on have nothing else. All ranks have the same number
// of batches, of the same sizes.
//
// With a subset the positions of all this are places in the subset.
//
// Not thread-safe. Allocates only in Create: two tables, for this epoch and
// the next.

#ifndef DATASETD_SERVER_FEED_SAMPLER_H_
#define DATASETD_SERVER_FEED_SAMPLER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/feed/subset.h"

namespace datasetd {

struct SamplerOptions {
  int64_t num_samples = 0;  // 1..2^32 - 1
  int64_t batch_size = 0;   // from 1
  bool shuffle = false;
  bool drop_last = false;
  uint64_t seed = 0;
  int64_t rank = 0;        // 0..world_size - 1
  int64_t world_size = 1;  // from 1
  // Sample indices, each once: num_samples of them. Null: 0, 1, 2, ...
  Subset subset;
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
    int64_t num_padding = 0;  // 0 or 1: the last row, wrapped around
  };
  // REQUIRES: 0 <= batch < batches_per_epoch().
  BatchShape Shape(int64_t batch) const;

  // Writes the sample indices of a batch to the first num_samples of
  // `indices`, whose size is at least batch_size; returns its shape.
  // Costs O(num_samples); the first batch of an epoch with a table that was
  // not prepared costs O(N). REQUIRES as above.
  BatchShape Fill(uint64_t epoch, int64_t batch, absl::Span<int64_t> indices);

  // Makes the table of `epoch` ahead, where tables are used: O(N). The table
  // that Fill used last is kept; another one is given up.
  void Prepare(uint64_t epoch);

 private:
  class Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_SAMPLER_H_
