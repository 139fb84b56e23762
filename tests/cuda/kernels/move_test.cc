#include "cuda/kernels/program/move.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "cuda/kernels/program/params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/augment_case.h"
#include "tests/testing/distribution.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;
using testing::FieldBuilder;

constexpr uint64_t kSeed = 42;

// The map of columns 0..n-1 for one sample.
std::vector<int> Columns(const FieldProgram& field, uint64_t epoch = 0,
                         int64_t sample = 0) {
  SampleMoves moves;
  DrawMoves(field, kSeed, epoch, sample, &moves);
  std::vector<int> map;
  for (int x = 0; x < field.out_width; ++x) {
    map.push_back(MapBack(field, moves.axis[1], x));
  }
  return map;
}

bool IsMirrored(const FieldProgram& field, uint64_t epoch, int64_t sample) {
  return DrawAxisMove(field.moves[0], Axis::kX, kSeed, epoch, sample)
      .is_mirrored;
}

TEST(MoveTest, PaddingModesMapAsNumpyPads) {
  const auto pad = [](PaddingMode mode) {
    return Columns(FieldBuilder(1, 4, 1).Pad(2, 0, 2, 0, mode).Build());
  };
  const int fill = FillEntry(0);
  EXPECT_THAT(pad(PaddingMode::kConstant),
              ElementsAre(fill, fill, 0, 1, 2, 3, fill, fill));
  EXPECT_THAT(pad(PaddingMode::kEdge), ElementsAre(0, 0, 0, 1, 2, 3, 3, 3));
  EXPECT_THAT(pad(PaddingMode::kReflect), ElementsAre(2, 1, 0, 1, 2, 3, 2, 1));
  EXPECT_THAT(pad(PaddingMode::kSymmetric),
              ElementsAre(1, 0, 0, 1, 2, 3, 3, 2));
}

TEST(MoveTest, PaddingThatTheCompilerRefusesStaysInside) {
  for (const PaddingMode mode :
       {PaddingMode::kEdge, PaddingMode::kReflect, PaddingMode::kSymmetric}) {
    for (const int entry :
         Columns(FieldBuilder(1, 3, 1).Pad(50, 0, 50, 0, mode).Build())) {
      EXPECT_GE(entry, 0);
      EXPECT_LT(entry, 3);
    }
  }
}

TEST(MoveTest, CropsAndFlipsCompose) {
  EXPECT_THAT(Columns(FieldBuilder(1, 6, 1)
                          .Crop(0, 1, 1, 4)
                          .HorizontalFlip(1.0f)
                          .Crop(0, 1, 1, 3)
                          .Build()),
              ElementsAre(3, 2, 1));
}

TEST(MoveTest, LaterFillIsNearer) {
  EXPECT_EQ(NearestFill(FillEntry(2), FillEntry(5)), FillEntry(5));
  EXPECT_EQ(NearestFill(FillEntry(5), FillEntry(2)), FillEntry(5));
  EXPECT_EQ(NearestFill(7, FillEntry(0)), FillEntry(0));
  EXPECT_FALSE(IsFill(NearestFill(7, 3)));
  EXPECT_EQ(FillMove(FillEntry(11)), 11);
}

TEST(MoveTest, CropPositionsAreUniformInBothAxesTogether) {
  const FieldProgram field = FieldBuilder(40, 40, 1).RandomCrop(32, 32).Build();
  constexpr int kDraws = 81 * 1000;
  std::vector<int64_t> counts(81, 0);
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t epoch = i / 1000;
    const int y =
        DrawAxisMove(field.moves[0], Axis::kY, kSeed, epoch, i % 1000).origin;
    const int x =
        DrawAxisMove(field.moves[0], Axis::kX, kSeed, epoch, i % 1000).origin;
    ASSERT_TRUE(y >= 0 && y <= 8 && x >= 0 && x <= 8);
    ++counts[9 * y + x];
  }
  // 80 degrees of freedom: the middle 99.98 % of the distribution.
  const double chi_square = ChiSquare(counts, kDraws / 81.0);
  EXPECT_GT(chi_square, 41.0);
  EXPECT_LT(chi_square, 138.0);
}

TEST(MoveTest, CropOfTheWholeImageIsTheImage) {
  const FieldProgram field = FieldBuilder(1, 5, 1).RandomCrop(1, 5).Build();
  for (int sample = 0; sample < 100; ++sample) {
    EXPECT_THAT(Columns(field, 0, sample), ElementsAre(0, 1, 2, 3, 4));
  }
}

TEST(MoveTest, FlipsAtTheirRate) {
  constexpr int kDraws = 100000;
  for (const float probability : {0.0f, 0.1f, 0.5f, 1.0f}) {
    const FieldProgram field =
        FieldBuilder(1, 2, 1).HorizontalFlip(probability).Build();
    int flips = 0;
    for (int i = 0; i < kDraws; ++i) {
      flips += IsMirrored(field, i / 1000, i % 1000) ? 1 : 0;
    }
    const double p = static_cast<double>(probability);
    // Four standard deviations; none at 0 and 1.
    EXPECT_LE(std::abs(flips - p * kDraws), 4 * std::sqrt(kDraws * p * (1 - p)))
        << p;
  }
}

TEST(MoveTest, DrawsOfOpsEpochsAndSamplesAreIndependent) {
  // Two flips of one pipeline, and each with itself an epoch and a sample on.
  const FieldProgram field =
      FieldBuilder(1, 2, 1).HorizontalFlip(0.5f).HorizontalFlip(0.5f).Build();
  const auto flips = [&field](int op, int epoch, int sample) {
    return DrawAxisMove(field.moves[op], Axis::kX, kSeed, epoch, sample)
        .is_mirrored;
  };
  std::vector<int64_t> by_op(4), by_epoch(4), by_sample(4);
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) {
    const int epoch = i / 200;
    const int sample = i % 200;
    const int first = flips(0, epoch, sample) ? 2 : 0;
    ++by_op[first + (flips(1, epoch, sample) ? 1 : 0)];
    ++by_epoch[first + (flips(0, epoch + 1, sample) ? 1 : 0)];
    ++by_sample[first + (flips(0, epoch, sample + 1) ? 1 : 0)];
  }
  // 3 degrees of freedom: above 21.1 once in ten thousand.
  EXPECT_LT(ChiSquare(by_op, kDraws / 4.0), 21.1);
  EXPECT_LT(ChiSquare(by_epoch, kDraws / 4.0), 21.1);
  EXPECT_LT(ChiSquare(by_sample, kDraws / 4.0), 21.1);
}

TEST(MoveTest, EachPairOfEpochsShowsBothViewsOfEveryImage) {
  const FieldProgram field = FieldBuilder(1, 2, 1).AlternatingFlip().Build();
  constexpr int kSamples = 10000;
  int flipped_first = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    const bool first = IsMirrored(field, 0, sample);
    flipped_first += first ? 1 : 0;
    for (uint64_t epoch = 0; epoch < 10; ++epoch) {
      ASSERT_EQ(IsMirrored(field, epoch, sample), first != (epoch % 2 == 1));
    }
  }
  // Half of them in each epoch, within four standard deviations.
  EXPECT_NEAR(flipped_first, kSamples / 2, 4 * 50);
}

}  // namespace
}  // namespace datasetd
