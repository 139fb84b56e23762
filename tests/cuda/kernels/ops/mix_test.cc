#include "cuda/kernels/ops/mix.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda/kernels/ops/beta.h"
#include "gtest/gtest.h"
#include "tests/reference/mix_reference.h"
#include "tests/reference/philox_reference.h"
#include "tests/testing/distribution.h"

namespace datasetd {
namespace {

constexpr uint64_t kSeed = 0x0123456789ABCDEFu;

MixProgram Program(MixKind kind, double alpha, bool per_sample = false) {
  MixProgram program = {};
  program.kind = kind;
  program.per_sample = per_sample;
  program.op_index = 3;
  program.alpha = alpha;
  return program;
}

BatchTask Batch(uint32_t index, uint64_t epoch = 0) {
  BatchTask batch = {};
  batch.num_samples = 8;
  batch.batch_index = index;
  batch.epoch = epoch;
  return batch;
}

MixDraw DrawOf(const MixProgram& program, const BatchTask& batch, int row = 0) {
  return DrawMix(program, kSeed, batch, row, 32, 24);
}

// The distance from Beta(alpha, alpha). 1 in 1,000 of right generators is
// beyond kMaxDistance.
double BetaDistance(const std::vector<double>& values, double alpha) {
  return KolmogorovSmirnov(
      values, [=](double x) { return reference::BetaCdf(alpha, x); });
}
constexpr double kMaxDistance = 1.95;

TEST(BetaReferenceTest, KnownValues) {
  EXPECT_NEAR(reference::BetaCdf(1.0, 0.3), 0.3, 1e-9);
  EXPECT_NEAR(reference::BetaCdf(2.0, 0.25), 3.0 / 16 - 2.0 / 64, 1e-6);
  // The arcsine law.
  EXPECT_NEAR(reference::BetaCdf(0.5, 0.1),
              2.0 / std::acos(-1.0) * std::asin(std::sqrt(0.1)), 1e-6);
  // The chance of 200 or more heads of 399 throws, each with 0.475.
  EXPECT_NEAR(reference::BetaCdf(200.0, 0.475), 0.15865506, 1e-6);
}

TEST(MixTest, LambdaIsOfBeta) {
  constexpr int kDraws = 2000;
  for (const double alpha : {0.2, 0.5, 0.99, 1.0, 2.0, 8.0, 200.0}) {
    std::vector<double> values;
    for (int i = 0; i < kDraws; ++i) {
      values.push_back(DrawOf(Program(MixKind::kMixUp, alpha),
                              Batch(static_cast<uint32_t>(i)))
                           .lambda);
    }
    EXPECT_LT(BetaDistance(values, alpha), kMaxDistance) << "alpha " << alpha;
  }
}

TEST(MixTest, RowsEpochsAndSeedsDrawAnew) {
  const MixProgram program = Program(MixKind::kMixUp, 1.0, true);
  constexpr int kRows = 4000;
  std::vector<double> by_row;
  std::vector<double> by_epoch;
  for (int i = 0; i < kRows; ++i) {
    by_row.push_back(DrawOf(program, Batch(7), i).lambda);
    by_epoch.push_back(
        DrawOf(program, Batch(7, static_cast<uint64_t>(i))).lambda);
  }
  EXPECT_LT(BetaDistance(by_row, 1.0), kMaxDistance);
  EXPECT_LT(BetaDistance(by_epoch, 1.0), kMaxDistance);
  // Neighbours are uncorrelated: a sum of 4,000 products has sigma 1/12 / 63.
  double covariance = 0.0;
  for (int i = 1; i < kRows; ++i) {
    covariance += (by_row[i] - 0.5) * (by_row[i - 1] - 0.5) / kRows;
  }
  EXPECT_LT(std::abs(covariance), 4.0 / 12.0 / std::sqrt(kRows));

  const MixProgram batchwise = Program(MixKind::kMixUp, 1.0);
  EXPECT_EQ(DrawOf(batchwise, Batch(7), 0).lambda,
            DrawOf(batchwise, Batch(7), 5).lambda);
  EXPECT_EQ(DrawOf(batchwise, Batch(7), 0).lambda,
            DrawOf(program, Batch(7), 0).lambda);
  EXPECT_NE(DrawMix(batchwise, 1, Batch(7), 0, 4, 4).lambda,
            DrawMix(batchwise, 2, Batch(7), 0, 4, 4).lambda);
}

TEST(MixTest, AnyAlphaGivesALambda) {
  for (uint32_t i = 0; i < 1000; ++i) {
    const double tiny =
        DrawOf(Program(MixKind::kMixUp, 5e-324), Batch(i)).lambda;
    EXPECT_TRUE(tiny < 1e-300 || tiny == 1.0) << tiny;
    const double huge =
        DrawOf(Program(MixKind::kMixUp, 1.7e308), Batch(i)).lambda;
    EXPECT_EQ(huge, 0.5);
  }
}

TEST(MixTest, BoxIsTorchvisions) {
  constexpr struct {
    int height, width;
  } kSizes[] = {{1, 1}, {2, 3}, {32, 32}, {31, 33}, {224, 160}};
  for (const auto& size : kSizes) {
    for (uint32_t i = 0; i < 500; ++i) {
      const int row = static_cast<int>(i % 5);
      const MixProgram program = Program(MixKind::kCutMix, 1.0, true);
      const MixDraw drawn =
          DrawMix(program, kSeed, Batch(i, 2), row, size.height, size.width);
      const uint32_t first = 128 * static_cast<uint32_t>(row);
      const double lambda = DrawBeta({kSeed, 2, int64_t{i}, 3}, first + 2, 1.0);
      const std::array<uint32_t, 4> words =
          reference::Philox({first + 1, 3, 2, i}, {0x89ABCDEFu, 0x01234567u});
      const auto center = [](uint32_t word, int bound) {
        return static_cast<int>((uint64_t{word} * bound) >> 32);
      };
      const reference::CutMixBox box = reference::CutMixBoxOf(
          lambda, center(words[0], size.width), center(words[1], size.height),
          size.height, size.width);
      ASSERT_EQ(drawn.top, box.top);
      ASSERT_EQ(drawn.left, box.left);
      ASSERT_EQ(drawn.bottom, box.bottom);
      ASSERT_EQ(drawn.right, box.right);
      ASSERT_EQ(drawn.lambda, box.lambda);
      ASSERT_EQ(drawn.own_weight, static_cast<float>(box.lambda));
      ASSERT_EQ(drawn.partner_weight, static_cast<float>(1.0 - box.lambda));
    }
  }
}

TEST(MixTest, PartnerIsTheRowBefore) {
  const BatchTask batch = Batch(0);
  EXPECT_EQ(PartnerRow(batch, 0), 7);
  EXPECT_EQ(PartnerRow(batch, 1), 0);
  EXPECT_EQ(PartnerRow(batch, 7), 6);
  BatchTask one = Batch(0);
  one.num_samples = 1;
  EXPECT_EQ(PartnerRow(one, 0), 0);
}

}  // namespace
}  // namespace datasetd
