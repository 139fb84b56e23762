#include "server/order/weight_table.h"

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
  // In blocks.
  const size_t half = weights.size() / 2;
  EXPECT_THAT(table.Append(absl::MakeSpan(weights).first(half)), IsOk());
  EXPECT_THAT(table.Append(absl::MakeSpan(weights).subspan(half)), IsOk());
  EXPECT_THAT(table.Finish(), IsOk());
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
  ASSERT_THAT(table.Append({1., 0., 2., 1.}), IsOk());
  ASSERT_THAT(table.AppendSamples({40, 7, 99}), IsOk());
  ASSERT_THAT(table.AppendSamples({40}), IsOk());
  ASSERT_THAT(table.Finish(), IsOk());
  std::vector<int64_t> samples(200);
  table.Draw(1, 1, 0, 1, absl::MakeSpan(samples));
  EXPECT_THAT(samples, Each(::testing::AnyOf(40, 99)));
}

TEST(WeightTableTest, OtherWeightsAreOfTheSameSamples) {
  WeightTable::Options options = Of(3);
  options.lists_samples = true;
  options.dataset_size = 100;
  WeightTable table(options);
  ASSERT_THAT(table.Append({1., 1., 1.}), IsOk());
  ASSERT_THAT(table.AppendSamples({40, 7, 99}), IsOk());
  ASSERT_THAT(table.Finish(), IsOk());
  const std::shared_ptr<WeightTable> other = WeightTable::Like(table);
  ASSERT_THAT(other->Append({0., 3., 0.}), IsOk());
  ASSERT_THAT(other->Finish(), IsOk());
  std::vector<int64_t> samples(20);
  other->Draw(1, 1, 0, 1, absl::MakeSpan(samples));
  EXPECT_THAT(samples, Each(7));
  EXPECT_EQ(WeightTable::SizeBytes(other->options()),
            WeightTable::SizeBytes(options));
}

TEST(WeightTableTest, WrongWeightsAreNamed) {
  const auto refuse = [](const std::vector<double>& weights, const char* text) {
    WeightTable table(Of(static_cast<int64_t>(weights.size())));
    EXPECT_THAT(table.Append(weights), IsOk());
    EXPECT_THAT(table.Finish(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refuse({1, -1},
         "weights[1] is -1; expected a finite number from 0 (sample 1 of "
         "dataset 'd')");
  refuse({NAN, 1}, "weights[0] is nan; expected");
  refuse({1, INFINITY}, "weights[1] is inf; expected");
  refuse({kMax, kMax}, "the sum up to it is not finite");
  refuse({0, 0}, "their sum is 0");
}

TEST(WeightTableTest, AWeightIsNamedByItsListedSample) {
  WeightTable::Options options = Of(2);
  options.lists_samples = true;
  options.dataset_size = 100;
  WeightTable table(options);
  ASSERT_THAT(table.Append({1., -2.}), IsOk());
  ASSERT_THAT(table.AppendSamples({40, 7}), IsOk());
  EXPECT_THAT(table.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("(sample 7 of")));
}

TEST(WeightTableTest, ListedSamplesAreOfTheDataset) {
  WeightTable::Options options = Of(2);
  options.lists_samples = true;
  for (const int64_t index : {int64_t{-1}, int64_t{2}, INT64_MAX, INT64_MIN}) {
    WeightTable table(options);
    EXPECT_THAT(table.AppendSamples({0, index}),
                StatusIs(absl::StatusCode::kOutOfRange,
                         AllOf(HasSubstr("samples[1] of the weights"),
                               HasSubstr("2 samples"))));
  }
}

}  // namespace
}  // namespace datasetd
