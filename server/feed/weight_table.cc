#include "server/feed/weight_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/require.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

using Words = std::array<uint64_t, 4>;

// Philox 4x64 with 10 rounds (Salmon et al. 2011).
Words Philox(uint64_t counter, uint64_t seed, uint64_t epoch) {
  Words words = {counter, 0, 0, 0};
  for (int round = 0; round < 10; ++round) {
    const auto first =
        static_cast<unsigned __int128>(0xD2E7470EE14C6C93) * words[0];
    const auto second =
        static_cast<unsigned __int128>(0xCA5A826395121157) * words[2];
    words = {static_cast<uint64_t>(second >> 64) ^ words[1] ^ seed,
             static_cast<uint64_t>(second),
             static_cast<uint64_t>(first >> 64) ^ words[3] ^ epoch,
             static_cast<uint64_t>(first)};
    seed += 0x9E3779B97F4A7C15;
    epoch += 0xBB67AE8584CAA73B;
  }
  return words;
}

}  // namespace

int64_t WeightTable::SizeBytes(const Options& options) {
  const size_t entry_bytes =
      sizeof(double) + (options.lists_samples ? sizeof(uint32_t) : 0);
  const int64_t guide_size = (int64_t{1} << GuideBits(options.num_samples)) + 1;
  return options.num_samples * static_cast<int64_t>(entry_bytes) +
         guide_size * static_cast<int64_t>(sizeof(uint32_t));
}

int WeightTable::GuideBits(int64_t num_samples) {
  return static_cast<int>(
      std::bit_width(static_cast<uint64_t>(num_samples) / 8));
}

WeightTable::WeightTable(const Options& options) : options_(options) {
  cumulative_.reserve(static_cast<size_t>(options.num_samples));
  guide_.reserve((size_t{1} << GuideBits(options.num_samples)) + 1);
  if (options.lists_samples) {
    samples_.reserve(static_cast<size_t>(options.num_samples));
  }
}

std::string WeightTable::Name(uint64_t i, const Block& block) const {
  return absl::StrCat("weights[", block.first + i, "], of sample ",
                      options_.lists_samples
                          ? block.indices[i]
                          : static_cast<int64_t>(block.first + i),
                      " of dataset '", options_.dataset, "': ");
}

absl::Status WeightTable::Check(const Block& block, double* sum) const {
  const uint64_t size = cumulative_.size();
  const auto num_samples = static_cast<uint64_t>(options_.num_samples);
  if (block.first != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("first: the block begins at ", block.first, ", and ", size,
                     " weights were sent before"));
  }
  if (block.weights.empty() || block.weights.size() > num_samples - size) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: the block has ", block.weights.size(), ", and ",
                     num_samples - size, " of ", num_samples, " are missing"));
  }
  const size_t num_indices = options_.lists_samples ? block.weights.size() : 0;
  if (block.indices.size() != num_indices) {
    return absl::InvalidArgumentError(
        absl::StrCat("indices: there are ", block.indices.size(), " for ",
                     block.weights.size(), " weights; expected ", num_indices,
                     options_.lists_samples ? ", with lists_samples"
                                            : ", without lists_samples"));
  }
  for (size_t i = 0; i < num_indices; ++i) {
    const int64_t index = block.indices[i];
    if (index >= 0 && index < options_.dataset_size) continue;
    return absl::OutOfRangeError(
        absl::StrCat("indices[", block.first + i, "]: ", index,
                     " is out of range; dataset '", options_.dataset, "' has ",
                     options_.dataset_size, " samples, counted from 0"));
  }
  *sum = cumulative_.empty() ? 0 : cumulative_.back();
  for (size_t i = 0; i < block.weights.size(); ++i) {
    const double weight = block.weights[i];
    if (!std::isfinite(weight) || weight < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(Name(i, block), "it is ", weight,
                       "; expected a finite number from 0"));
    }
    *sum += weight;
    if (!std::isfinite(*sum)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Name(i, block), "it is ", weight,
                       ", and the sum up to it is not finite: divide all "
                       "weights by one number"));
    }
  }
  if (size + block.weights.size() == num_samples && *sum == 0) {
    return absl::InvalidArgumentError(
        "weights: their sum is 0; expected a weight above 0");
  }
  return absl::OkStatus();
}

absl::Status WeightTable::Append(const Block& block) {
  MutexLock lock(&mutex_);
  double sum;
  DATASETD_RETURN_IF_ERROR(Check(block, &sum));
  sum = cumulative_.empty() ? 0 : cumulative_.back();
  for (const double weight : block.weights) {
    if (weight > 0) last_ = cumulative_.size();
    sum += weight;
    cumulative_.push_back(sum);
  }
  samples_.insert(samples_.end(), block.indices.begin(), block.indices.end());
  if (cumulative_.size() == static_cast<size_t>(options_.num_samples)) {
    MakeGuide();
    is_complete_.store(true);
  }
  return absl::OkStatus();
}

void WeightTable::MakeGuide() {
  const int bits = GuideBits(options_.num_samples);
  size_t place = 0;
  for (uint64_t i = 0; i <= uint64_t{1} << bits; ++i) {
    const double u = std::ldexp(static_cast<double>(i), -bits);
    while (place < cumulative_.size() &&
           cumulative_[place] <= u * cumulative_.back()) {
      ++place;
    }
    guide_.push_back(static_cast<uint32_t>(place));
  }
}

void WeightTable::Draw(uint64_t seed, uint64_t epoch, uint64_t first,
                       uint64_t step, absl::Span<int64_t> samples) const {
  Require(is_complete(), "all weights are there");
  const double sum = cumulative_.back();
  const int guide_bits = GuideBits(options_.num_samples);
  Words words = {};
  uint64_t block = 0;  // of the words; 0: none
  uint64_t position = first;
  for (int64_t& sample : samples) {
    // NumPy's counter is 1 for the first four words.
    if (const uint64_t wanted = position / 4 + 1; wanted != block) {
      block = wanted;
      words = Philox(block, seed, epoch);
    }
    const uint64_t bits = words[position % 4] >> 11;
    const double u = static_cast<double>(bits) * 0x1p-53;
    const uint32_t* const guide = &guide_[bits >> (53 - guide_bits)];
    const auto found =
        std::upper_bound(cumulative_.begin() + guide[0],
                         cumulative_.begin() + guide[1], u * sum);
    // Rounding may make u * sum the sum itself.
    const uint64_t place = std::min<uint64_t>(
        static_cast<uint64_t>(found - cumulative_.begin()), last_);
    sample = samples_.empty() ? static_cast<int64_t>(place)
                              : static_cast<int64_t>(samples_[place]);
    position += step;
  }
}

}  // namespace datasetd
