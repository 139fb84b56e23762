// The order of a mixture with ratios: which dataset (part) each position of an
// epoch takes a sample of, and which sample.
//
// Part d has c[d] rows per epoch: the largest remainders of ratio[d] / sum *
// num_rows. The k-th row of part d in epoch e is draw e * c[d] + k of the
// part's own endless passes: draw n is place n mod N[d] of pass n / N[d], in
// sequence, or with `shuffle` in an order keyed by (seed, pass, d). So passes
// go on from epoch to epoch, and each sample comes once in each.
//
// Which part a position takes, and which row k of it:
//   shuffle        a permutation of the epoch's positions, keyed by (seed,
//                  epoch), gives each the place of a row, where part 0 has the
//                  first c[0] places, part 1 the next c[1], and so on
//   fixed per      of the first f positions n(d, f) are part d's, the floor of
//   batch          its share of those that the parts before it leave. The batch
//                  [begin, end) of all ranks has rows n(d, begin) .. n(d, end)
//                  of each part, one part after the other
//   neither        batches of one position: the parts take turns evenly
//
// Thread-compatible. Fill does not allocate.

#ifndef DATASETD_SERVER_ORDER_MIXTURE_ORDER_H_
#define DATASETD_SERVER_ORDER_MIXTURE_ORDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda/kernels/math/permutation.h"
#include "cuda/kernels/program/params.h"
#include "datasetd/v1/feed.pb.h"
#include "server/dataset/dataset.h"

namespace datasetd {

struct MixtureOptions {
  std::vector<uint64_t> num_samples;  // of each part
  std::vector<uint64_t> num_rows;     // per epoch, of each part
  bool is_fixed_per_batch = false;
};

// Returns the order of a mixture of `parts`, one for each of the message; null
// if all ratios are 0, so that the order is that of one dataset.
//   INVALID_ARGUMENT  a ratio is not finite and above 0, or gives no row; or
//                     num_rows is out of range
absl::StatusOr<std::optional<MixtureOptions>> PlanMixture(
    const v1::Mixture& mixture,
    absl::Span<const std::shared_ptr<const Dataset>> parts);

class MixtureOrder {
 public:
  // Of the batch of all ranks to which a position belongs.
  struct BatchRange {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  // REQUIRES: 1 to kMaxMixtureParts parts with at least one sample and one row
  // each, and fewer than 2^32 samples, and rows, together.
  MixtureOrder(const MixtureOptions& options, bool shuffle, uint64_t seed);

  // The memory of MixtureOrder(options).
  static int64_t SizeBytes(const MixtureOptions& options);

  uint64_t num_rows() const { return num_rows_; }

  // Writes the samples, counted through all parts, of positions first, first +
  // step, ... of an epoch. REQUIRES: these are within the range, which is
  // within the epoch, and epoch < 2^32.
  void Fill(uint64_t epoch, BatchRange range, uint64_t first, uint64_t step,
            absl::Span<int64_t> samples);

  // About how long Fill takes for a row.
  int64_t row_nanoseconds() const;

 private:
  using Permutation = FeistelPermutation<16>;
  using RowCounts = std::array<uint64_t, kMaxMixtureParts>;
  struct Pass {
    uint64_t number = 0;
    Permutation order;
  };
  struct Part {
    uint64_t num_samples = 0;
    uint64_t num_rows = 0;
    uint64_t first_sample = 0;
    uint64_t first_row = 0;  // the rows of the parts before it
    // Those of an epoch, or the last ones used: pass i has place i % size.
    std::vector<Pass> passes;
  };

  static size_t NumKept(uint64_t num_samples, uint64_t num_rows);
  Pass PassOf(size_t part, uint32_t num_samples, uint64_t number) const;
  // The sample that is row k of a part in an epoch.
  int64_t SampleOf(size_t part, uint64_t epoch, uint64_t k);
  // Writes n(d, f) for each part.
  void CountRows(uint64_t f, RowCounts& rows) const;
  void FillShuffled(uint64_t epoch, uint64_t first, uint64_t step,
                    absl::Span<int64_t> samples);
  void FillFixed(uint64_t epoch, BatchRange range, uint64_t first,
                 uint64_t step, absl::Span<int64_t> samples);
  void FillInTurn(uint64_t epoch, uint64_t first, uint64_t step,
                  absl::Span<int64_t> samples);

  const uint64_t seed_;
  const bool shuffle_;
  const bool is_fixed_per_batch_;
  uint64_t num_rows_ = 0;
  std::vector<Part> parts_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_MIXTURE_ORDER_H_
