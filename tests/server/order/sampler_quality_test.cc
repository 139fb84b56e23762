// How random the orders are. Seeds are fixed, so these tests give the same
// result on every run. Every statistic is compared with its distribution under
// truly random orders at 5 standard deviations of a normal: were the seeds
// drawn anew, one comparison would fail by chance with probability 6e-7, and
// this file, which has about 200, with probability 1e-4.

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "server/order/sampler.h"
#include "tests/testing/distribution.h"

namespace datasetd {
namespace {

std::vector<int64_t> Order(int64_t num_samples, uint64_t seed, uint64_t epoch) {
  auto sampler = Sampler::Create({.num_samples = num_samples,
                                  .batch_size = num_samples,
                                  .shuffle = true,
                                  .seed = seed});
  std::vector<int64_t> order(num_samples);
  (*sampler)->Fill(epoch, 0, absl::MakeSpan(order));
  return order;
}

// A Poisson count of a large mean.
double PoissonZ(double count, double mean) {
  EXPECT_GE(mean, 50.0);
  return (count - mean) / std::sqrt(mean);
}

// Counts values that should be uniform over 0..range - 1, in 64 bins.
class Histogram {
 public:
  explicit Histogram(int64_t range) : range_(range) {}

  void Add(int64_t value) { ++counts_[value * kBins / range_]; }

  double Z() const {
    double total = 0;
    for (int64_t count : counts_) total += count;
    double chi_square = 0;
    for (int64_t bin = 0; bin < kBins; ++bin) {
      // The values from ceil(bin * range / kBins) on.
      const int64_t begin = (bin * range_ + kBins - 1) / kBins;
      const int64_t end = ((bin + 1) * range_ + kBins - 1) / kBins;
      const double expected = total * (end - begin) / range_;
      EXPECT_GE(expected, 5.0);
      const double off = counts_[bin] - expected;
      chi_square += off * off / expected;
    }
    return ChiSquareZ(chi_square, kBins - 1.0);
  }

 private:
  static constexpr int64_t kBins = 64;

  const int64_t range_;
  int64_t counts_[kBins] = {};
};

// Counts pairs in a table of kBins x kBins cells, and tells whether the two
// are independent given how often each value occurs.
class Contingency {
 public:
  static constexpr int kBins = 32;

  explicit Contingency(int64_t range) : range_(range) {}

  void Add(int64_t a, int64_t b) {
    ++counts_[a * kBins / range_][b * kBins / range_];
  }

  double Z() const {
    double rows[kBins] = {}, columns[kBins] = {}, total = 0;
    for (int i = 0; i < kBins; ++i) {
      for (int j = 0; j < kBins; ++j) {
        rows[i] += counts_[i][j];
        columns[j] += counts_[i][j];
        total += counts_[i][j];
      }
    }
    double chi_square = 0;
    for (int i = 0; i < kBins; ++i) {
      for (int j = 0; j < kBins; ++j) {
        const double expected = rows[i] * columns[j] / total;
        EXPECT_GE(expected, 5.0);
        const double off = counts_[i][j] - expected;
        chi_square += off * off / expected;
      }
    }
    return ChiSquareZ(chi_square, (kBins - 1.0) * (kBins - 1.0));
  }

 private:
  const int64_t range_;
  int64_t counts_[kBins][kBins] = {};
};

// All n! orders of a small set.

class SmallSetTest : public ::testing::TestWithParam<int> {};

TEST_P(SmallSetTest, AllOrdersAreEquallyLikely) {
  const int n = GetParam();
  int64_t num_orders = 1;
  for (int i = 2; i <= n; ++i) num_orders *= i;
  std::map<std::vector<int64_t>, int64_t> by_epoch, by_seed, by_both;
  const int64_t num_draws = 400 * num_orders;
  for (int64_t i = 0; i < num_draws; ++i) {
    ++by_epoch[Order(n, 1, i)];
    ++by_seed[Order(n, i, 1)];
    ++by_both[Order(n, 1000000 + i / 500, i % 500)];
  }
  for (const auto* counted : {&by_epoch, &by_seed, &by_both}) {
    ASSERT_EQ(static_cast<int64_t>(counted->size()), num_orders);
    std::vector<int64_t> counts;
    for (const auto& [order, count] : *counted) counts.push_back(count);
    EXPECT_LT(std::abs(EquallyLikelyZ(counts)), kMaxZ);
  }
}

class SmallSetPairTest : public ::testing::TestWithParam<int> {};

TEST_P(SmallSetPairTest, OrdersOfConsecutiveEpochsAreIndependent) {
  const int n = GetParam();
  std::map<std::tuple<std::vector<int64_t>, std::vector<int64_t>>, int64_t>
      epochs, seeds;
  int64_t num_pairs = 1;
  for (int i = 2; i <= n; ++i) num_pairs *= i * i;
  for (int64_t i = 0; i < 200 * num_pairs; ++i) {
    // Pairs that share no order.
    ++epochs[{Order(n, 5, 2 * i), Order(n, 5, 2 * i + 1)}];
    ++seeds[{Order(n, 2 * i, 5), Order(n, 2 * i + 1, 5)}];
  }
  for (const auto* counted : {&epochs, &seeds}) {
    ASSERT_EQ(static_cast<int64_t>(counted->size()), num_pairs);
    std::vector<int64_t> counts;
    for (const auto& [pair, count] : *counted) counts.push_back(count);
    EXPECT_LT(std::abs(EquallyLikelyZ(counts)), kMaxZ);
  }
}

INSTANTIATE_TEST_SUITE_P(N, SmallSetTest, ::testing::Range(2, 7));
INSTANTIATE_TEST_SUITE_P(N, SmallSetPairTest, ::testing::Range(2, 5));

// Large sets: sizes below the table's limit, at it, just above, and above.

struct LargeSet {
  int64_t num_samples;
  int num_epochs;
};

class LargeSetTest : public ::testing::TestWithParam<LargeSet> {
 protected:
  const int64_t n_ = GetParam().num_samples;
  const int num_epochs_ = GetParam().num_epochs;
};

TEST_P(LargeSetTest, PositionTellsNothingOfIndex) {
  // Pooled over epochs, and epoch by epoch.
  Contingency pooled(n_);
  for (int epoch = 0; epoch < num_epochs_; ++epoch) {
    const std::vector<int64_t> order = Order(n_, 77, epoch);
    Contingency single(n_);
    for (int64_t p = 0; p < n_; ++p) {
      pooled.Add(p, order[p]);
      single.Add(p, order[p]);
    }
    if (n_ >= 50000 && epoch < 8) {
      EXPECT_LT(std::abs(single.Z()), kMaxZ) << "epoch " << epoch;
    }
  }
  EXPECT_LT(std::abs(pooled.Z()), kMaxZ);
}

TEST_P(LargeSetTest, NeighboursAreIndependent) {
  // Pairs at a distance of 1, 2, and about a row of the bijection's domain.
  const int64_t root = std::ceil(std::sqrt(n_));
  for (int64_t distance : {int64_t{1}, int64_t{2}, root - 1, root, root + 1}) {
    Contingency pairs(n_);
    Histogram differences(n_ - 1);
    // Pairs of values that are one or about a row apart, in either direction.
    int64_t num_close = 0;
    double expected_close = 0;
    for (int epoch = 0; epoch < num_epochs_; ++epoch) {
      const std::vector<int64_t> order = Order(n_, 78, epoch);
      // Pairs that share no position.
      for (int64_t start = 0; start + 2 * distance <= n_;
           start += 2 * distance) {
        for (int64_t p = start; p < start + distance; ++p) {
          const int64_t a = order[p], b = order[p + distance];
          pairs.Add(a, b);
          // Uniform over 1..n - 1.
          const int64_t difference = (b - a + n_) % n_;
          differences.Add(difference - 1);
          for (int64_t close : {int64_t{1}, root - 1, root, root + 1}) {
            num_close += difference == close || difference == n_ - close;
          }
          expected_close += 8.0 / (n_ - 1);
        }
      }
    }
    EXPECT_LT(std::abs(pairs.Z()), kMaxZ) << "distance " << distance;
    EXPECT_LT(std::abs(differences.Z()), kMaxZ) << "distance " << distance;
    if (expected_close >= 50) {
      EXPECT_LT(std::abs(PoissonZ(num_close, expected_close)), kMaxZ)
          << "distance " << distance;
    }
  }
}

TEST_P(LargeSetTest, ConsecutiveEpochsAndSeedsAreIndependent) {
  struct Step {
    const char* name;
    uint64_t seed, epoch;
  };
  for (const Step& step : {Step{"epoch + 1", 0, 1}, Step{"seed + 1", 1, 0},
                           Step{"seed + 1, epoch - 1", 1, uint64_t(-1)},
                           Step{"epoch + 2^32", 0, uint64_t{1} << 32},
                           Step{"seed + 2^32", uint64_t{1} << 32, 0}}) {
    Contingency pairs(n_);
    Histogram differences(n_);
    int64_t num_equal = 0;
    for (int i = 0; i < num_epochs_; ++i) {
      const uint64_t seed = 900 + 2 * i, epoch = 1 + 2 * i;
      const std::vector<int64_t> a = Order(n_, seed, epoch);
      const std::vector<int64_t> b =
          Order(n_, seed + step.seed, epoch + step.epoch);
      for (int64_t p = 0; p < n_; ++p) {
        pairs.Add(a[p], b[p]);
        differences.Add((b[p] - a[p] + n_) % n_);
        num_equal += a[p] == b[p];
      }
    }
    EXPECT_LT(std::abs(pairs.Z()), kMaxZ) << step.name;
    EXPECT_LT(std::abs(differences.Z()), kMaxZ) << step.name;
    // One per pair of orders on average; the binomial tail at few.
    if (num_epochs_ >= 50) {
      EXPECT_LT(std::abs(PoissonZ(num_equal, num_epochs_)), kMaxZ) << step.name;
    } else {
      // Poisson of mean m exceeds m + 8 sqrt(m) with less than 1e-7, m >= 8.
      EXPECT_LE(num_equal, num_epochs_ + 8 * std::sqrt(num_epochs_))
          << step.name;
    }
  }
}

TEST_P(LargeSetTest, EveryPlaceGetsEveryIndexEquallyOften) {
  // A few places, over many seeds and epochs.
  const std::vector<int64_t> positions = {0, 1, n_ / 2, n_ - 1};
  // Making a table costs O(N): fewer draws.
  const int num_draws = n_ <= Sampler::kMaxTableSize ? 1000 : 20000;
  auto sampler = Sampler::Create(
      {.num_samples = n_, .batch_size = 1, .shuffle = true, .seed = 31337});
  std::vector<Histogram> histograms(positions.size(), Histogram(n_));
  for (int draw = 0; draw < num_draws; ++draw) {
    for (size_t i = 0; i < positions.size(); ++i) {
      int64_t index = 0;
      (*sampler)->Fill(draw, positions[i], absl::MakeSpan(&index, 1));
      histograms[i].Add(index);
    }
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    EXPECT_LT(std::abs(histograms[i].Z()), kMaxZ)
        << "position " << positions[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    N, LargeSetTest,
    ::testing::Values(LargeSet{1000, 1000}, LargeSet{50000, 64},
                      LargeSet{65536, 64}, LargeSet{65537, 64},
                      LargeSet{100000, 64}, LargeSet{1000003, 8}),
    [](const ::testing::TestParamInfo<LargeSet>& info) {
      return std::to_string(info.param.num_samples);
    });

// A Feistel network keeps a half of its input for a round: places that share
// a column must not tend to get indices that share one, nor rows.
TEST(BijectionTest, ColumnsAndRowsOfTheDomainDoNotShow) {
  constexpr int64_t kSize = 65537;  // 257 rows, 256 columns
  constexpr int64_t kColumns = 256;
  constexpr int kEpochs = 64;
  int64_t same_column[2] = {}, same_row[2] = {};
  double num_pairs[2] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> order = Order(kSize, 12, epoch);
    for (int kind = 0; kind < 2; ++kind) {
      // Pairs in one column (kind 0) or in one row (kind 1).
      const int64_t distance = kind == 0 ? kColumns : 1;
      for (int64_t start = 0; start + 2 * distance <= kSize;
           start += 2 * distance) {
        for (int64_t p = start; p < start + distance; ++p) {
          const int64_t a = order[p], b = order[p + distance];
          same_column[kind] += a % kColumns == b % kColumns;
          same_row[kind] += a / kColumns == b / kColumns;
          num_pairs[kind] += 1;
        }
      }
    }
  }
  // Chances that a second index shares the column, the row, of a first: one
  // column has 257 places, the others 256; one row has 1, the others 256.
  const double total = kSize * (kSize - 1.0);
  const double column_chance = (257.0 * 256.0 + 255.0 * 256.0 * 255.0) / total;
  const double row_chance = 256.0 * 256.0 * 255.0 / total;
  for (int kind = 0; kind < 2; ++kind) {
    EXPECT_LT(
        std::abs(PoissonZ(same_column[kind], num_pairs[kind] * column_chance)),
        kMaxZ);
    EXPECT_LT(std::abs(PoissonZ(same_row[kind], num_pairs[kind] * row_chance)),
              kMaxZ);
  }
}

}  // namespace
}  // namespace datasetd
