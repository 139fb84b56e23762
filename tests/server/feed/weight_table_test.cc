#include "server/feed/weight_table.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kLeast = std::numeric_limits<double>::denorm_min();

WeightTable::Options Of(int64_t num_samples) {
  return {
      .num_samples = num_samples, .dataset_size = num_samples, .dataset = "d"};
}

std::vector<int64_t> Draws(const std::vector<double>& weights, int64_t count,
                           uint64_t seed, uint64_t epoch, uint64_t first = 0,
                           uint64_t step = 1) {
  WeightTable table(Of(static_cast<int64_t>(weights.size())));
  EXPECT_THAT(table.Append({.weights = weights}), IsOk());
  EXPECT_TRUE(table.is_complete());
  std::vector<int64_t> samples(static_cast<size_t>(count));
  table.Draw(seed, epoch, first, step, absl::MakeSpan(samples));
  return samples;
}

// The expected values are NumPy's; tests/client/python/weights_test.py
// compares whole epochs.
TEST(WeightTableTest, DrawsWhatNumPyDraws) {
  EXPECT_THAT(Draws({1, 2, 3, 4, 0}, 16, 7, 3),
              ElementsAre(2, 3, 0, 2, 3, 1, 2, 2, 2, 1, 3, 3, 2, 3, 3, 1));
  EXPECT_THAT(Draws({1, 2, 3, 4, 0}, 16, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF),
              ElementsAre(3, 3, 2, 3, 3, 2, 2, 2, 3, 1, 2, 2, 2, 3, 2, 1));
}

TEST(WeightTableTest, ADrawIsAFunctionOfItsPosition) {
  const std::vector<double> weights = {3, 0, 1, 0.5, 2, 8};
  const std::vector<int64_t> whole = Draws(weights, 100, 5, 9);
  for (const uint64_t step : {1, 2, 3, 4, 7}) {
    for (const uint64_t first : {0, 1, 6}) {
      const std::vector<int64_t> some = Draws(weights, 10, 5, 9, first, step);
      for (size_t i = 0; i < some.size(); ++i) {
        EXPECT_EQ(some[i], whole[first + i * step]) << first << " " << step;
      }
    }
  }
  EXPECT_NE(Draws(weights, 100, 5, 10), whole);
  EXPECT_NE(Draws(weights, 100, 6, 9), whole);
}

TEST(WeightTableTest, SamplesComeInProportion) {
  const std::vector<double> weights = {0, 1, 2, 0, 4, 3, 0};
  constexpr int64_t kDraws = 100'000;
  std::vector<double> counts(weights.size());
  for (const int64_t sample : Draws(weights, kDraws, 1, 0)) ++counts[sample];
  for (size_t i = 0; i < weights.size(); ++i) {
    const double p = weights[i] / 10;
    // Six standard deviations; none at all of weight 0.
    EXPECT_NEAR(counts[i], kDraws * p, 6 * std::sqrt(kDraws * p * (1 - p)));
  }
}

TEST(WeightTableTest, WeightsAtTheEdges) {
  EXPECT_THAT(Draws({0.25}, 50, 1, 1), Each(0));
  EXPECT_THAT(Draws({0, 0, kLeast, 0}, 50, 1, 1), Each(2));
  EXPECT_THAT(Draws({0, kMax, 0, 0}, 50, 1, 1), Each(1));
  EXPECT_THAT(Draws({-0.0, 1, -0.0}, 50, 1, 1), Each(1));
  // A weight that is lost in the sum.
  EXPECT_THAT(Draws({1e300, 1}, 50, 1, 1), Each(0));
}

TEST(WeightTableTest, ListedSamplesMayRepeat) {
  WeightTable::Options options = Of(4);
  options.lists_samples = true;
  options.dataset_size = 100;
  WeightTable table(options);
  ASSERT_THAT(table.Append({.weights = {1., 0., 2.}, .indices = {40, 7, 99}}),
              IsOk());
  EXPECT_FALSE(table.is_complete());
  ASSERT_THAT(table.Append({.first = 3, .weights = {1.}, .indices = {40}}),
              IsOk());
  EXPECT_TRUE(table.is_complete());
  std::vector<int64_t> samples(200);
  table.Draw(1, 1, 0, 1, absl::MakeSpan(samples));
  EXPECT_THAT(samples, Each(::testing::AnyOf(40, 99)));
}

TEST(WeightTableTest, BlocksMakeTheSameTable) {
  const std::vector<double> weights = {0.1, 0.2, 0.3, 0, 0.7, 0.9, 1e-9};
  WeightTable table(Of(7));
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_FALSE(table.is_complete());
    ASSERT_THAT(table.Append({.first = i, .weights = {weights[i]}}), IsOk());
  }
  std::vector<int64_t> samples(100);
  table.Draw(3, 4, 0, 1, absl::MakeSpan(samples));
  EXPECT_EQ(samples, Draws(weights, 100, 3, 4));
}

TEST(WeightTableTest, WrongBlocksAreRefusedWhole) {
  WeightTable table(Of(3));
  const auto refuse = [&](const WeightTable::Block& block, const char* text) {
    EXPECT_THAT(table.Append(block),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  ASSERT_THAT(table.Append({.weights = {0.}}), IsOk());
  refuse({.first = 0, .weights = {1.}}, "begins at 0, and 1 weights");
  refuse({.first = 2, .weights = {1.}}, "begins at 2, and 1 weights");
  refuse({.first = 1}, "the block has 0, and 2 of 3 are missing");
  refuse({.first = 1, .weights = {1., 1., 1.}}, "the block has 3, and 2 of 3");
  refuse({.first = 1, .weights = {1., -1.}},
         "weights[2], of sample 2 of dataset 'd': it is -1; expected");
  refuse({.first = 1, .weights = {NAN, 1.}}, "weights[1], of sample 1");
  refuse({.first = 1, .weights = {1., INFINITY}}, "it is inf; expected");
  refuse({.first = 1, .weights = {kMax, kMax}}, "the sum up to it is not");
  refuse({.first = 1, .weights = {0., 0.}}, "their sum is 0");
  refuse({.first = 1, .weights = {1.}, .indices = {1}}, "expected 0, without");
  ASSERT_THAT(table.Append({.first = 1, .weights = {0., 2.}}), IsOk());
  std::vector<int64_t> samples(50);
  table.Draw(1, 1, 0, 1, absl::MakeSpan(samples));
  EXPECT_THAT(samples, Each(2));
  refuse({.first = 3, .weights = {1.}}, "and 0 of 3 are missing");
}

TEST(WeightTableTest, ListedSamplesAreOfTheDataset) {
  WeightTable::Options options = Of(2);
  options.lists_samples = true;
  WeightTable table(options);
  EXPECT_THAT(table.Append({.weights = {1.}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected 1, with lists_samples")));
  for (const int64_t index : {int64_t{-1}, int64_t{2}, INT64_MAX, INT64_MIN}) {
    EXPECT_THAT(
        table.Append({.weights = {1., 1.}, .indices = {0, index}}),
        StatusIs(absl::StatusCode::kOutOfRange,
                 AllOf(HasSubstr("indices[1]"), HasSubstr("2 samples"))));
  }
}

}  // namespace
}  // namespace datasetd
