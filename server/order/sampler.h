// The order of samples: maps a position in a batch to a sample index.
//
// A function of (options, epoch, batch) and of nothing else. The global order
// of an epoch is the identity, or a permutation keyed by (seed, epoch): up to
// kMaxTableSize samples a Philox-driven Fisher-Yates table, above it a keyed
// bijection computed per position (cuda/kernels/math/permutation.h).
//
// Shards match torch's DistributedSampler. Rank r of w takes positions r, r +
// w, r + 2w, ... of the global order, and every rank gets the same number:
//   without drop_last  ceil(N / w); positions from N on are padding and wrap
//                      around: position p is position p mod N
//   with drop_last     floor(N / w); the last N mod w positions are left out
// But with `unpadded` a rank gets its positions below N and no more: the ranks
// may differ by one row, and in the number of batches, which may be 0.
// A rank's samples are then cut into batches of batch_size, as by torch's
// BatchSampler: the last one is short without drop_last, and left out with it.
// A batch_size above floor(N / w) with drop_last gives no batches, which is
// legal.
//
// Without rows_per_epoch only the last round of w positions is padded: a rank
// has at most one padding row per epoch, the last row of its last batch. With w
// > N, the ranks from N on have only that row. Unless unpadded, all ranks have
// the same number of batches, of the same sizes.
//
// With rows_per_epoch every rank gets that many rows instead: positions that
// are left are left out, and positions from N on wrap around, as often as it
// takes.
//
// With a subset, positions are positions in the subset.
//
// With weights, position p is draw p of the epoch (weight_table.h), and N above
// is num_draws. Nothing is padding: positions from N on are further draws.
//
// With groups, position p is group p of the epoch (group_table.h), N above is
// num_groups, and a batch has batch_size / group_size positions, each of
// group_size rows. Positions from N on are further groups.
//
// With documents, position p is row p of the epoch (document_order.h), and the
// index of a row is its first step.
//
// With windows of a stream, indices are first steps of windows
// (window_order.h). Of blocks N is their number. If starts are drawn, position
// p is draw p, and N and positions from N on are as with weights.
//
// With a mixture, position p is row p of the epoch (mixture_order.h), and N
// above is num_draws. Its batches are those of all ranks: batch b has positions
// f + b * batch_size * w and on, f being first_position.
//
// With first_position f, an epoch is the rest of its global order: rank r takes
// positions f + r, f + r + w, ..., and N above is N - f. Padding wraps around
// to position 0 all the same.
//
// Not thread-safe. Allocates only in Create: two tables, for this epoch and the
// next.

#ifndef DATASETD_SERVER_ORDER_SAMPLER_H_
#define DATASETD_SERVER_ORDER_SAMPLER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/order/document_order.h"
#include "server/order/group_table.h"
#include "server/order/mixture_order.h"
#include "server/order/subset.h"
#include "server/order/weight_table.h"
#include "server/order/window_order.h"

namespace datasetd {

// A position in the endless sequence of a feed's batches.
struct FeedPosition {
  uint64_t epoch = 0;
  uint64_t batch = 0;  // within the epoch
};

// The epoch is one 32-bit word of the Philox counter.
inline constexpr uint64_t kMaxEpoch = 0xFFFFFFFFu;

struct SamplerOptions {
  int64_t num_samples = 0;  // 1..2^32 - 1
  int64_t batch_size = 0;   // at least 1
  bool shuffle = false;
  bool drop_last = false;
  bool unpadded = false;  // excludes drop_last
  uint64_t seed = 0;
  int64_t rank = 0;        // 0..world_size - 1
  int64_t world_size = 1;  // at least 1
  // Below num_samples, num_draws or num_groups.
  uint64_t first_position = 0;
  // Below 2^32. Excludes unpadded, first_position, num_draws and groups.
  std::optional<uint64_t> rows_per_epoch;
  // Distinct sample indices, num_samples of them when Fill is called. Null: 0,
  // 1, 2, ...
  Subset subset;
  // Finished when Fill is called; excludes shuffle and subset. Null: no
  // weights. SetWeights replaces them.
  std::shared_ptr<const WeightTable> weights;
  // Of a mixture with ratios; excludes weights, groups and subset.
  std::optional<MixtureOptions> mixture;
  // Of windows; excludes weights, groups, subset and mixture. num_samples are
  // blocks.
  std::optional<WindowPlan> windows;
  // As windows; num_samples are rows, which shuffle does not permute.
  std::optional<DocumentPlan> documents;
  // Rows per epoch over all ranks; set if there are weights, a mixture or
  // random windows.
  std::optional<uint64_t> num_draws;
  // Finished when Fill is called; excludes shuffle and weights, and with a
  // subset draws places in it. Null: no groups.
  std::shared_ptr<const GroupTable> groups;
  std::optional<uint64_t> num_groups;  // per epoch; set if there are groups
  int64_t group_size = 1;              // above 1 only with groups

  // True if random ops are seeded by the rows' positions, because a sample may
  // come several times in an epoch. Those of groups are, too.
  bool repeats_samples() const { return num_draws.has_value(); }
};

class Sampler {
 public:
  static constexpr int64_t kMaxTableSize = 65536;

  // Batches per epoch of Create(options), which fails if this does. Pure.
  // Subset and weights need not be there yet.
  //   INVALID_ARGUMENT  an option is out of range; names it
  static absl::StatusOr<int64_t> CountBatches(const SamplerOptions& options);
  // The memory of Create(options), but for the subset and the weights.
  static int64_t TableBytes(const SamplerOptions& options);

  // Errors as CountBatches. REQUIRES: num_draws is set if and only if weights,
  // a mixture or random windows are; num_groups, if and only if groups are.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(
      const SamplerOptions& options);
  ~Sampler();

  // The same for every epoch and, unless unpadded, for every rank; may be 0.
  int64_t batches_per_epoch() const {
    return static_cast<int64_t>(num_batches_);
  }

  struct BatchShape {
    int64_t num_samples = 0;  // 1..batch_size
    int64_t num_padding = 0;  // the last rows, wrapped around
  };
  // REQUIRES: batch < batches_per_epoch().
  BatchShape Shape(uint64_t batch) const;

  // Position of a batch's first row, or group, in the global order; those of
  // the next ones are world_size apart.
  uint64_t FirstPosition(uint64_t batch) const {
    return Position(batch * batch_size_);
  }

  // Writes the sample indices of a batch to the first num_samples elements of
  // `indices`, whose size is at least batch_size; returns the batch's shape.
  // Costs O(num_samples), times O(log N) with weights, and O(N) for the first
  // batch of an epoch whose table was not prepared. REQUIRES as for Shape.
  BatchShape Fill(uint64_t epoch, uint64_t batch, absl::Span<int64_t> indices);
  // Writes only the indices of rows first_row, first_row + 1, ... of the batch,
  // one for each element of `indices`. REQUIRES: the batch has these rows, of
  // which there is one at least.
  // With documents also their entries, DocumentPlan::row_entries for each row.
  // REQUIRES then: BuildOrder has returned true for the epoch, last for it or
  // for the one before.
  void FillRows(uint64_t epoch, uint64_t batch, uint64_t first_row,
                absl::Span<int64_t> indices, int64_t* entries = nullptr);
  // Makes the order of documents in an epoch, in pieces: takes about as long as
  // *nanoseconds say, and deducts it. Returns true once it is complete. Of
  // other orders deducts only what FillRows will take for the table of the
  // epoch.
  bool BuildOrder(uint64_t epoch, int64_t* nanoseconds);

  // About how long FillRows takes on one core: for each row, and once if the
  // table of `epoch` is to be made.
  int64_t row_nanoseconds() const;
  int64_t TableNanoseconds(uint64_t epoch) const;

  // Draws by `weights`, which are of the same samples and finished, from now
  // on. Returns those before. REQUIRES: there are weights.
  std::shared_ptr<const WeightTable> SetWeights(
      std::shared_ptr<const WeightTable> weights);

  // Computes the table of `epoch` ahead of time, if tables are used: O(N).
  // Keeps the table that Fill used last and replaces the other. Of documents
  // about as much of it as takes `nanoseconds`; returns false if some is left.
  bool Prepare(uint64_t epoch, int64_t nanoseconds);

 private:
  // The tables of two epochs.
  class Tables;

  explicit Sampler(const SamplerOptions& options);
  // Position of this rank's row (or group) in the padded order. Below
  // num_samples (or num_draws, num_groups) + world_size, or rows_per_epoch *
  // world_size, so below 2^64.
  uint64_t Position(uint64_t row) const {
    return first_position_ + rank_ + row * world_size_;
  }
  // FillRows, of a mixture.
  void FillMixed(uint64_t epoch, uint64_t batch, uint64_t first_row,
                 absl::Span<int64_t> indices);
  // How many of a batch's rows from `first_row` on are not wrapped around.
  size_t NumUnpaddedOf(uint64_t first_row, size_t num_rows) const {
    return std::clamp(num_unpadded_rows_, first_row, first_row + num_rows) -
           first_row;
  }
  template <typename Order>
  void Gather(uint64_t first_row, Order order,
              absl::Span<int64_t> indices) const;

  const Subset subset_;
  const uint64_t seed_;
  const uint64_t num_samples_;
  const uint64_t num_positions_;  // of a mixture's epoch, from position 0 on
  const uint64_t group_size_;
  const uint64_t batch_size_;  // in positions, as the numbers below
  const uint64_t rank_;
  const uint64_t world_size_;
  const uint64_t first_position_;
  const bool shuffle_;
  std::shared_ptr<const WeightTable> weights_;      // null: none
  const std::shared_ptr<const GroupTable> groups_;  // null: none
  const std::unique_ptr<MixtureOrder> mixture_;     // null: none
  const std::optional<WindowPlan> windows_;
  const std::unique_ptr<DocumentOrder> documents_;  // null: none
  const uint64_t num_rows_;  // per epoch, equal for all ranks
  const uint64_t num_batches_;
  uint64_t num_unpadded_rows_;      // the first of these
  std::unique_ptr<Tables> tables_;  // null where none is used
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ORDER_SAMPLER_H_
