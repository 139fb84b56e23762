#include "server/order/weight_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/require.h"

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

std::shared_ptr<WeightTable> WeightTable::Like(const WeightTable& other) {
  auto table = std::make_shared<WeightTable>(other.options_);
  table->samples_ = other.samples_;
  return table;
}

absl::Status WeightTable::Append(absl::Span<const double> weights) {
  cumulative_.insert(cumulative_.end(), weights.begin(), weights.end());
  return absl::OkStatus();
}

absl::Status WeightTable::AppendSamples(absl::Span<const int64_t> samples) {
  for (const int64_t sample : samples) {
    if (sample < 0 || sample >= options_.dataset_size) {
      return absl::OutOfRangeError(absl::StrCat(
          "samples[", samples_.size(), "] of the weights: ", sample,
          " is out of range; there are ", options_.dataset_size,
          " samples, counted from 0, in dataset '", options_.dataset, "'"));
    }
    samples_.push_back(static_cast<uint32_t>(sample));
  }
  return absl::OkStatus();
}

std::string WeightTable::SampleName(size_t place) const {
  return absl::StrCat(
      " (sample ",
      options_.lists_samples ? uint64_t{samples_[place]} : uint64_t{place},
      " of dataset '", options_.dataset, "')");
}

absl::Status WeightTable::Finish() {
  const auto num_samples = static_cast<size_t>(options_.num_samples);
  Require(cumulative_.size() == num_samples &&
              samples_.size() == (options_.lists_samples ? num_samples : 0),
          "all weights are there");
  double sum = 0;
  for (size_t i = 0; i < num_samples; ++i) {
    const double weight = cumulative_[i];
    if (!std::isfinite(weight) || weight < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("weights[", i, "] is ", weight,
                       "; expected a finite number from 0", SampleName(i)));
    }
    if (weight > 0) last_ = i;
    sum += weight;
    if (!std::isfinite(sum)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weights[", i, "] is ", weight,
          ", and the sum up to it is not finite: divide all weights by one "
          "number",
          SampleName(i)));
    }
    cumulative_[i] = sum;
  }
  if (sum == 0) {
    return absl::InvalidArgumentError(
        "weights: their sum is 0; expected a weight above 0");
  }
  MakeGuide();
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
  Require(!guide_.empty(), "the weights are summed up");
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
