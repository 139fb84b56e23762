#include "server/order/sampler.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "cuda/kernels/math/permutation.h"
#include "cuda/kernels/math/random.h"
#include "server/order/uniform_int64.h"

namespace datasetd {
namespace {

constexpr int64_t kMaxNumSamples = 0xFFFFFFFF;

// Measured and rounded up: AMD EPYC, GCC 12 -O2.
constexpr int64_t kTableEntryNanoseconds = 16;
constexpr int64_t kRowNanoseconds = 4;  // from a table, or not shuffled
constexpr int64_t kKeyedRowNanoseconds = 40;
constexpr int64_t kDrawNanoseconds = 200;  // of a large WeightTable
constexpr int64_t kGroupNanoseconds = 1000;
constexpr int64_t kGroupRowNanoseconds = 150;
constexpr int64_t kSubsetNanoseconds = 10;
constexpr int64_t kStartNanoseconds = 20;

absl::Status ValidateDraws(const SamplerOptions& options) {
  // A position is one 32-bit word of the Philox counter of random ops.
  const uint64_t max_draws =
      kMaxNumSamples - std::min<uint64_t>(kMaxNumSamples, options.world_size);
  if (*options.num_draws > max_draws) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.mixture.has_value()   ? "num_rows"
                     : options.windows.has_value() ? "num_windows"
                                                   : "num_draws",
                     " is ", *options.num_draws, "; with world_size ",
                     options.world_size, " it must be within 0..", max_draws));
  }
  if (options.first_position > 0 &&
      options.first_position >= *options.num_draws) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_position is ", options.first_position, "; with ",
                     *options.num_draws,
                     options.mixture.has_value()   ? " rows"
                     : options.windows.has_value() ? " windows"
                                                   : " draws",
                     " it must be 0 or below that"));
  }
  if (options.subset != nullptr ||
      (options.shuffle && !options.mixture.has_value())) {
    return absl::InvalidArgumentError(
        "weights exclude shuffle and subset of the sampler, and a mixture "
        "excludes subset");
  }
  return absl::OkStatus();
}

absl::Status ValidateGroups(const SamplerOptions& options) {
  const int64_t group_size = options.group_size;
  if (group_size < 1 || options.batch_size % group_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group_size is ", group_size, "; it must be at least 1 and divide the ",
        options.batch_size, " rows of a batch"));
  }
  // As for draws: the rows' positions are below 2^32.
  const uint64_t max_groups =
      kMaxNumSamples / group_size -
      std::min<uint64_t>(kMaxNumSamples / group_size, options.world_size);
  const uint64_t num_groups = *options.num_groups;
  if (num_groups < 1 || num_groups > max_groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_groups is ", num_groups, "; with groups of ",
                     group_size, " and world_size ", options.world_size,
                     " it must be within 1..", max_groups));
  }
  if (options.first_position >= num_groups) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_position is ", options.first_position, "; with ",
                     num_groups, " groups it must be below that"));
  }
  if (options.shuffle || options.rows_per_epoch.has_value()) {
    return absl::InvalidArgumentError(
        "groups exclude shuffle and rows_per_epoch of the sampler");
  }
  return absl::OkStatus();
}

absl::Status Validate(const SamplerOptions& options) {
  if (options.num_samples < 1 || options.num_samples > kMaxNumSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_samples is ", options.num_samples,
                     "; it must be within 1..", kMaxNumSamples));
  }
  if (options.batch_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch_size is ", options.batch_size, "; it must be at least 1"));
  }
  if (options.world_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "world_size is ", options.world_size, "; it must be at least 1"));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank is ", options.rank, "; with world_size ", options.world_size,
        " it must be within 0..", options.world_size - 1));
  }
  if (options.unpadded && options.drop_last) {
    return absl::InvalidArgumentError(
        "drop_last and unpadded exclude each other: unpadded gives every "
        "sample, and drop_last leaves some out");
  }
  if (options.rows_per_epoch.has_value() &&
      (options.unpadded || options.first_position != 0 ||
       options.num_draws.has_value())) {
    return absl::InvalidArgumentError(
        "rows_per_epoch sets the number of rows: unpadded, first_position and "
        "weights must not be set with it; for weights, set num_draws");
  }
  if (options.rows_per_epoch.value_or(0) > kMaxNumSamples) {
    return absl::InvalidArgumentError(
        absl::StrCat("rows_per_epoch is ", *options.rows_per_epoch,
                     "; it must be within 0..", kMaxNumSamples));
  }
  if (options.num_draws.has_value()) return ValidateDraws(options);
  if (options.num_groups.has_value()) return ValidateGroups(options);
  if (options.first_position >= static_cast<uint64_t>(options.num_samples)) {
    return absl::InvalidArgumentError(
        absl::StrCat("first_position is ", options.first_position, "; with ",
                     options.num_samples,
                     options.windows.has_value() ? " windows" : " samples",
                     " it must be within 0..", options.num_samples - 1));
  }
  return absl::OkStatus();
}

uint64_t NumPositions(const SamplerOptions& options) {
  return options.num_draws.value_or(options.num_groups.value_or(
             static_cast<uint64_t>(options.num_samples))) -
         options.first_position;
}

// This rank's rows whose positions are not wrapped around.
uint64_t NumUnpadded(const SamplerOptions& options) {
  const uint64_t num_positions = NumPositions(options);
  const auto rank = static_cast<uint64_t>(options.rank);
  const auto world_size = static_cast<uint64_t>(options.world_size);
  return rank < num_positions ? (num_positions - rank - 1) / world_size + 1 : 0;
}

// This rank's rows (or groups) per epoch. REQUIRES: Validate(options) is OK.
uint64_t NumRows(const SamplerOptions& options) {
  if (options.rows_per_epoch.has_value()) return *options.rows_per_epoch;
  if (options.unpadded) return NumUnpadded(options);
  const uint64_t num_positions = NumPositions(options);
  const auto world_size = static_cast<uint64_t>(options.world_size);
  const bool has_rest = num_positions % world_size != 0;
  return num_positions / world_size + (has_rest && !options.drop_last ? 1 : 0);
}

// REQUIRES: as NumRows.
uint64_t NumBatches(const SamplerOptions& options) {
  const uint64_t num_rows = NumRows(options);
  const auto batch_size =
      static_cast<uint64_t>(options.batch_size / options.group_size);
  const bool has_rest = num_rows % batch_size != 0;
  return num_rows / batch_size + (has_rest && !options.drop_last ? 1 : 0);
}

bool DrawsStarts(const SamplerOptions& options) {
  return options.windows.has_value() && options.windows->is_random;
}

// Step s of the shuffle swaps position i = size - 1 - s with one of 0..i,
// chosen by half s mod 2 of Philox block s / 2.
void Shuffle(uint64_t seed, uint64_t epoch, absl::Span<uint16_t> order) {
  std::iota(order.begin(), order.end(), uint16_t{0});
  Words4 words = {};
  for (size_t step = 0; step + 1 < order.size(); ++step) {
    const size_t i = order.size() - 1 - step;
    const size_t half = step % 2;
    if (half == 0) {
      words = Draw(seed, static_cast<uint32_t>(step / 2), kShuffleOpIndex,
                   static_cast<uint32_t>(epoch),
                   static_cast<uint32_t>(epoch >> 32));
    }
    std::swap(order[i], order[UniformInt64(HalfOf(words, half), i + 1)]);
  }
}

bool NeedsTables(const SamplerOptions& options) {
  return options.shuffle && !options.mixture.has_value() &&
         options.num_samples <= Sampler::kMaxTableSize;
}

}  // namespace

class Sampler::Tables {
 public:
  static int64_t SizeBytes(int64_t size) {
    return 2 * size * static_cast<int64_t>(sizeof(uint16_t));
  }

  Tables(uint64_t seed, int64_t size) : seed_(seed) {
    for (Table& table : tables_) table.order.resize(size);
  }

  // Valid until the second next call of Use or Prepare for another epoch.
  const uint16_t* Use(uint64_t epoch) {
    if (!tables_[used_].IsOf(epoch)) {
      Prepare(epoch);
      used_ = 1 - used_;
    }
    return tables_[used_].order.data();
  }

  bool Has(uint64_t epoch) const {
    return tables_[0].IsOf(epoch) || tables_[1].IsOf(epoch);
  }

  void Prepare(uint64_t epoch) {
    if (Has(epoch)) return;
    Table& other = tables_[1 - used_];
    Shuffle(seed_, epoch, absl::MakeSpan(other.order));
    other.epoch = epoch;
    other.is_made = true;
  }

 private:
  struct Table {
    bool IsOf(uint64_t wanted) const { return is_made && epoch == wanted; }

    bool is_made = false;
    uint64_t epoch = 0;
    std::vector<uint16_t> order;  // indices are below kMaxTableSize
  };

  const uint64_t seed_;
  Table tables_[2];
  int used_ = 0;
};
static_assert(Sampler::kMaxTableSize - 1 <= 0xFFFF);

int64_t Sampler::TableBytes(const SamplerOptions& options) {
  if (options.mixture.has_value()) {
    return MixtureOrder::SizeBytes(*options.mixture);
  }
  if (options.documents.has_value()) {
    return DocumentOrder::SizeBytes(*options.documents);
  }
  return NeedsTables(options) ? Tables::SizeBytes(options.num_samples) : 0;
}

absl::StatusOr<int64_t> Sampler::CountBatches(const SamplerOptions& options) {
  DATASETD_RETURN_IF_ERROR(Validate(options));
  return static_cast<int64_t>(NumBatches(options));
}

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(
    const SamplerOptions& options) {
  DATASETD_RETURN_IF_ERROR(Validate(options));
  Require((options.weights != nullptr || options.mixture.has_value() ||
           DrawsStarts(options)) == options.num_draws.has_value(),
          "draws are by weight, of a mixture or of windows");
  Require((options.groups != nullptr) == options.num_groups.has_value(),
          "a number of groups");
  return absl::WrapUnique(new Sampler(options));
}

Sampler::Sampler(const SamplerOptions& options)
    : subset_(options.subset),
      seed_(options.seed),
      num_samples_(options.num_samples),
      num_positions_(options.num_draws.value_or(num_samples_)),
      group_size_(options.group_size),
      batch_size_(options.batch_size / options.group_size),
      rank_(options.rank),
      world_size_(options.world_size),
      first_position_(options.first_position),
      shuffle_(options.shuffle),
      weights_(options.weights),
      groups_(options.groups),
      mixture_(options.mixture.has_value()
                   ? std::make_unique<MixtureOrder>(*options.mixture, shuffle_,
                                                    seed_)
                   : nullptr),
      windows_(options.windows),
      documents_(
          options.documents.has_value()
              ? std::make_unique<DocumentOrder>(*options.documents, seed_)
              : nullptr),
      num_rows_(NumRows(options)),
      num_batches_(NumBatches(options)) {
  num_unpadded_rows_ =
      weights_ != nullptr || groups_ != nullptr || DrawsStarts(options)
          ? num_rows_
          : std::min(num_rows_, NumUnpadded(options));
  if (NeedsTables(options)) {
    tables_ = std::make_unique<Tables>(seed_, options.num_samples);
  }
}

Sampler::~Sampler() = default;

Sampler::BatchShape Sampler::Shape(uint64_t batch) const {
  Require(batch < num_batches_, "the batch is one of the epoch");
  const uint64_t first_row = batch * batch_size_;
  const uint64_t num_left = num_rows_ - first_row;
  BatchShape shape;
  const uint64_t num_rows = std::min(batch_size_, num_left);
  const uint64_t end = first_row + num_rows;
  shape.num_samples = num_rows * group_size_;
  shape.num_padding = end - std::clamp(num_unpadded_rows_, first_row, end);
  return shape;
}

Sampler::BatchShape Sampler::Fill(uint64_t epoch, uint64_t batch,
                                  absl::Span<int64_t> indices) {
  const BatchShape shape = Shape(batch);
  Require(static_cast<int64_t>(indices.size()) >= shape.num_samples,
          "the indices of a batch have room");
  FillRows(epoch, batch, 0, indices.first(shape.num_samples));
  return shape;
}

void Sampler::FillRows(uint64_t epoch, uint64_t batch, uint64_t first,
                       absl::Span<int64_t> indices, int64_t* entries) {
  const BatchShape shape = Shape(batch);
  Require(!indices.empty() && first + indices.size() <=
                                  static_cast<uint64_t>(shape.num_samples),
          "the rows are the batch's");
  const uint64_t first_row = batch * batch_size_ + first;
  if (weights_ != nullptr) {
    weights_->Draw(seed_, epoch, Position(first_row), world_size_, indices);
  } else if (groups_ != nullptr) {
    groups_->Draw(seed_, epoch, FirstPosition(batch), world_size_, first,
                  indices);
  } else if (mixture_ != nullptr) {
    FillMixed(epoch, batch, first_row, indices);
  } else if (windows_.has_value() && windows_->is_random) {
    DrawStarts(*windows_, seed_, epoch, Position(first_row), world_size_,
               indices);
    return;
  } else if (tables_ != nullptr) {
    const uint16_t* order = tables_->Use(epoch);
    Gather(
        first_row, [order](uint64_t p) { return order[p]; }, indices);
  } else if (shuffle_) {
    const KeyedPermutation order(seed_, epoch,
                                 static_cast<uint32_t>(num_samples_));
    Gather(
        first_row,
        [&order](uint64_t p) { return order(static_cast<uint32_t>(p)); },
        indices);
  } else {
    Gather(
        first_row, [](uint64_t p) { return p; }, indices);
  }
  if (subset_ != nullptr) {
    Require(subset_->size() == num_samples_, "the subset is there");
    for (int64_t& index : indices) index = (*subset_)[index];
  }
  if (windows_.has_value()) PlaceBlocks(*windows_, seed_, epoch, indices);
  if (documents_ != nullptr) {
    Require(entries != nullptr, "there is room for the entries");
    documents_->Fill(epoch, indices, entries);
  }
}

bool Sampler::BuildOrder(uint64_t epoch, int64_t* nanoseconds) {
  if (documents_ != nullptr) return documents_->Prepare(epoch, nanoseconds);
  *nanoseconds -= TableNanoseconds(epoch);
  return true;
}

void Sampler::FillMixed(uint64_t epoch, uint64_t batch, uint64_t first_row,
                        absl::Span<int64_t> indices) {
  const uint64_t batch_rows = batch_size_ * world_size_;
  const uint64_t begin = first_position_ + batch * batch_rows;
  const MixtureOrder::BatchRange range = {
      begin, std::min(begin + batch_rows, num_positions_)};
  const size_t num_unpadded = NumUnpaddedOf(first_row, indices.size());
  if (num_unpadded > 0) {
    mixture_->Fill(epoch, range, Position(first_row), world_size_,
                   indices.first(num_unpadded));
  }
  for (size_t i = num_unpadded; i < indices.size(); ++i) {
    // As a batch of its own: it may belong to none of this epoch's.
    const uint64_t wrapped = Position(first_row + i) % num_positions_;
    mixture_->Fill(epoch, {wrapped, wrapped + 1}, wrapped, 1,
                   indices.subspan(i, 1));
  }
}

std::shared_ptr<const WeightTable> Sampler::SetWeights(
    std::shared_ptr<const WeightTable> weights) {
  Require(
      weights_ != nullptr && weights != nullptr &&
          weights->options().num_samples == static_cast<int64_t>(num_samples_),
      "weights replace those of the same samples");
  return std::exchange(weights_, std::move(weights));
}

bool Sampler::Prepare(uint64_t epoch, int64_t nanoseconds) {
  if (documents_ != nullptr) return documents_->Prepare(epoch, &nanoseconds);
  if (tables_ != nullptr) tables_->Prepare(epoch);
  return true;
}

int64_t Sampler::row_nanoseconds() const {
  if (weights_ != nullptr) return kDrawNanoseconds;
  if (groups_ != nullptr) {
    return kGroupRowNanoseconds +
           kGroupNanoseconds / static_cast<int64_t>(group_size_);
  }
  if (mixture_ != nullptr) return mixture_->row_nanoseconds();
  if (documents_ != nullptr) return documents_->row_nanoseconds();
  if (windows_.has_value() && windows_->is_random) return kStartNanoseconds;
  return (shuffle_ && tables_ == nullptr ? kKeyedRowNanoseconds
                                         : kRowNanoseconds) +
         (subset_ != nullptr ? kSubsetNanoseconds : 0);
}

int64_t Sampler::TableNanoseconds(uint64_t epoch) const {
  if (documents_ != nullptr) return documents_->NanosecondsLeft(epoch);
  if (tables_ == nullptr || tables_->Has(epoch)) return 0;
  return static_cast<int64_t>(num_samples_) * kTableEntryNanoseconds;
}

template <typename Order>
void Sampler::Gather(uint64_t first_row, Order order,
                     absl::Span<int64_t> indices) const {
  const size_t num_unpadded = NumUnpaddedOf(first_row, indices.size());
  const uint64_t stride = world_size_;
  uint64_t position = Position(first_row);
  int64_t* out = indices.data();
  size_t i = 0;
  for (; i < num_unpadded; ++i, position += stride) out[i] = order(position);
  for (; i < indices.size(); ++i, position += stride) {
    out[i] = order(position % num_samples_);
  }
}

}  // namespace datasetd
