#include "server/order/mixture_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/require.h"
#include "cuda/kernels/math/random.h"

namespace datasetd {
namespace {

// Measured and rounded up: AMD EPYC, GCC 12 -O2. With the keys of a pass, which
// a part needs for about every row if an epoch has more passes of it than are
// kept.
constexpr int64_t kShuffledRowNanoseconds = 400;
constexpr int64_t kPlainRowNanoseconds = 60;
constexpr int64_t kTurnNanoseconds = 8;  // for each part

// Keys of so many passes of a part are kept, 160 bytes each.
constexpr uint64_t kMaxKeptPasses = 16;

}  // namespace

absl::StatusOr<std::optional<MixtureOptions>> PlanMixture(
    const v1::Mixture& mixture,
    absl::Span<const std::shared_ptr<const Dataset>> parts) {
  Require(static_cast<size_t>(mixture.parts_size()) == parts.size(),
          "a dataset for each part");
  if (std::all_of(mixture.parts().begin(), mixture.parts().end(),
                  [](const auto& part) { return part.ratio() == 0; })) {
    return std::nullopt;
  }
  MixtureOptions options;
  options.is_fixed_per_batch = mixture.is_fixed_per_batch();
  uint64_t num_rows = mixture.num_rows();
  double sum = 0;
  for (size_t d = 0; d < parts.size(); ++d) {
    const v1::MixturePart& part = mixture.parts(static_cast<int>(d));
    if (!std::isfinite(part.ratio()) || part.ratio() <= 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "mixture: the ratio of dataset '", part.dataset(), "' is ",
          part.ratio(),
          "; it must be finite and above 0: leave out a dataset that is not to "
          "be drawn, or give all the ratio 0 to have each sample once"));
    }
    sum += part.ratio();
    options.num_samples.push_back(
        static_cast<uint64_t>(parts[d]->num_samples()));
    if (mixture.num_rows() == 0) num_rows += options.num_samples.back();
  }
  if (!std::isfinite(sum)) {
    return absl::InvalidArgumentError(
        "mixture: the sum of the ratios is not finite: divide all of them");
  }
  if (num_rows > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mixture: num_rows is ", num_rows, "; it must be within 0..",
        std::numeric_limits<uint32_t>::max()));
  }
  std::vector<double> rest;
  uint64_t num_left = num_rows;
  for (const v1::MixturePart& part : mixture.parts()) {
    const double share = part.ratio() / sum * static_cast<double>(num_rows);
    options.num_rows.push_back(
        std::min(num_left, static_cast<uint64_t>(share)));
    rest.push_back(share - std::floor(share));
    num_left -= options.num_rows.back();
  }
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rest[a] > rest[b]; });
  for (size_t i = 0; num_left > 0; ++i, --num_left) {
    ++options.num_rows[order[i % order.size()]];
  }
  for (size_t d = 0; d < parts.size(); ++d) {
    if (options.num_rows[d] > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "mixture: dataset '", mixture.parts(static_cast<int>(d)).dataset(),
        "' would have none of the ", num_rows,
        " rows of an epoch: raise its ratio or num_rows, or leave it out"));
  }
  return options;
}

MixtureOrder::MixtureOrder(const MixtureOptions& options, bool shuffle,
                           uint64_t seed)
    : seed_(seed),
      shuffle_(shuffle),
      is_fixed_per_batch_(options.is_fixed_per_batch) {
  const size_t num_parts = options.num_samples.size();
  Require(num_parts >= 1 && num_parts <= kMaxMixtureParts &&
              options.num_rows.size() == num_parts,
          "a mixture has 1 to kMaxMixtureParts parts");
  parts_.reserve(num_parts);
  uint64_t first_sample = 0;
  for (size_t d = 0; d < num_parts; ++d) {
    const uint64_t num_samples = options.num_samples[d];
    Require(num_samples >= 1 && options.num_rows[d] >= 1,
            "a part has samples and rows");
    Part& part = parts_.emplace_back();
    part.num_samples = num_samples;
    part.num_rows = options.num_rows[d];
    part.first_sample = first_sample;
    part.first_row = num_rows_;
    const size_t num_kept = NumKept(num_samples, part.num_rows);
    part.passes.reserve(num_kept);
    for (size_t i = 0; i < num_kept; ++i) {
      part.passes.push_back(PassOf(d, Narrow<uint32_t>(num_samples), i));
    }
    first_sample += num_samples;
    num_rows_ += options.num_rows[d];
  }
}

size_t MixtureOrder::NumKept(uint64_t num_samples, uint64_t num_rows) {
  return static_cast<size_t>(
      std::min<uint64_t>(num_rows / num_samples + 2, kMaxKeptPasses));
}

int64_t MixtureOrder::SizeBytes(const MixtureOptions& options) {
  size_t size_bytes = options.num_samples.size() * sizeof(Part);
  for (size_t d = 0; d < options.num_samples.size(); ++d) {
    size_bytes +=
        NumKept(options.num_samples[d], options.num_rows[d]) * sizeof(Pass);
  }
  return static_cast<int64_t>(size_bytes);
}

MixtureOrder::Pass MixtureOrder::PassOf(size_t part, uint32_t num_samples,
                                        uint64_t number) const {
  return {number,
          Permutation(seed_, number, num_samples,
                      kMixturePartOpIndex + static_cast<uint32_t>(part))};
}

int64_t MixtureOrder::SampleOf(size_t d, uint64_t epoch, uint64_t k) {
  Part& part = parts_[d];
  // Below 2^64, as epoch, num_rows and k are below 2^32.
  const uint64_t draw = epoch * part.num_rows + k;
  const uint64_t number = draw / part.num_samples;
  auto place = static_cast<uint32_t>(draw - number * part.num_samples);
  if (shuffle_) {
    Pass& pass = part.passes[number % part.passes.size()];
    if (pass.number != number) {
      pass = PassOf(d, pass.order.size(), number);
    }
    place = pass.order(place);
  }
  return static_cast<int64_t>(part.first_sample + place);
}

void MixtureOrder::Fill(uint64_t epoch, BatchRange range, uint64_t first,
                        uint64_t step, absl::Span<int64_t> samples) {
  if (is_fixed_per_batch_) {
    FillFixed(epoch, range, first, step, samples);
  } else if (shuffle_) {
    FillShuffled(epoch, first, step, samples);
  } else {
    FillInTurn(epoch, first, step, samples);
  }
}

void MixtureOrder::FillShuffled(uint64_t epoch, uint64_t first, uint64_t step,
                                absl::Span<int64_t> samples) {
  const Permutation order(seed_, epoch, static_cast<uint32_t>(num_rows_),
                          kMixtureOpIndex);
  for (int64_t& sample : samples) {
    const uint64_t row = order(static_cast<uint32_t>(first));
    const auto after = std::upper_bound(
        parts_.begin(), parts_.end(), row,
        [](uint64_t r, const Part& part) { return r < part.first_row; });
    const auto d = static_cast<size_t>(after - parts_.begin()) - 1;
    sample = SampleOf(d, epoch, row - parts_[d].first_row);
    first += step;
  }
}

void MixtureOrder::CountRows(uint64_t f, RowCounts& rows) const {
  uint64_t num_left = num_rows_;  // of the parts from d on
  for (size_t d = 0; d < parts_.size(); ++d) {
    rows[d] = f * parts_[d].num_rows / num_left;
    f -= rows[d];
    num_left -= parts_[d].num_rows;
  }
}

void MixtureOrder::FillFixed(uint64_t epoch, BatchRange range, uint64_t first,
                             uint64_t step, absl::Span<int64_t> samples) {
  RowCounts begin;
  RowCounts end;
  CountRows(range.begin, begin);
  CountRows(range.end, end);
  size_t d = 0;
  uint64_t position = range.begin;  // of the first row of part d
  for (int64_t& sample : samples) {
    while (first - position >= end[d] - begin[d]) {
      position += end[d] - begin[d];
      ++d;
    }
    sample = SampleOf(d, epoch, begin[d] + (first - position));
    first += step;
  }
}

void MixtureOrder::FillInTurn(uint64_t epoch, uint64_t first, uint64_t step,
                              absl::Span<int64_t> samples) {
  for (int64_t& sample : samples) {
    uint64_t f = first;
    uint64_t num_left = num_rows_;
    for (size_t d = 0;; ++d) {
      const uint64_t num_rows = parts_[d].num_rows;
      const uint64_t count = f * num_rows / num_left;
      // Whether n(d, f + 1) is larger; that of the last part is.
      if (f * num_rows % num_left + num_rows >= num_left) {
        sample = SampleOf(d, epoch, count);
        break;
      }
      f -= count;
      num_left -= num_rows;
    }
    first += step;
  }
}

int64_t MixtureOrder::row_nanoseconds() const {
  if (shuffle_) return kShuffledRowNanoseconds;
  return kPlainRowNanoseconds +
         (is_fixed_per_batch_
              ? 0
              : kTurnNanoseconds * static_cast<int64_t>(parts_.size()));
}

}  // namespace datasetd
