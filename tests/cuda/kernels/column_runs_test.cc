#include "cuda/kernels/host/column_runs.h"

#include <cstdint>
#include <random>
#include <vector>

#include "cuda/kernels/program/move.h"
#include "cuda/kernels/program/params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/augment_case.h"

namespace datasetd {
namespace {

using testing::FieldBuilder;

std::vector<ColumnRun> Runs(const std::vector<int32_t>& map) {
  std::vector<ColumnRun> runs(map.size());
  runs.resize(
      FindRuns(map.data(), static_cast<int32_t>(map.size()), runs.data()));
  return runs;
}

MATCHER_P4(RunIs, begin, length, entry, step, "") {
  return arg.begin == begin && arg.length == length && arg.entry == entry &&
         arg.step == step;
}

TEST(ColumnRunsTest, FindsEachKindOfRun) {
  EXPECT_THAT(Runs({-1, -1, 4, 5, 6, 6, 6, 5, 4, -2, -1, 9}),
              ::testing::ElementsAre(RunIs(0, 2, -1, 0), RunIs(2, 3, 4, 1),
                                     RunIs(5, 2, 6, 0), RunIs(7, 2, 5, -1),
                                     RunIs(9, 1, -2, 0), RunIs(10, 1, -1, 0),
                                     RunIs(11, 1, 9, 0)));
}

TEST(ColumnRunsTest, FillAndCoordinateZeroAreNoRun) {
  EXPECT_THAT(Runs({-1, 0, 1}),
              ::testing::ElementsAre(RunIs(0, 1, -1, 0), RunIs(1, 2, 0, 1)));
  EXPECT_THAT(Runs({1, 0, -1}),
              ::testing::ElementsAre(RunIs(0, 2, 1, -1), RunIs(2, 1, -1, 0)));
}

TEST(ColumnRunsTest, RunsSpellTheMap) {
  std::mt19937 engine(1);
  for (int round = 0; round < 1000; ++round) {
    std::vector<int32_t> map(1 + engine() % 40);
    for (int32_t& entry : map) entry = static_cast<int32_t>(engine() % 6) - 3;
    std::vector<int32_t> spelled;
    for (const ColumnRun& run : Runs(map)) {
      ASSERT_EQ(run.begin, static_cast<int32_t>(spelled.size()));
      for (int32_t i = 0; i < run.length; ++i) {
        spelled.push_back(run.entry + i * run.step);
      }
    }
    ASSERT_EQ(spelled, map);
  }
}

TEST(ColumnRunsTest, MapAxisIsMapBack) {
  FieldBuilder builder(9, 11, 1);
  for (const PaddingMode mode :
       {PaddingMode::kConstant, PaddingMode::kEdge, PaddingMode::kReflect,
        PaddingMode::kSymmetric}) {
    builder.Pad(3, 2, 4, 5, mode).HorizontalFlip(0.5f).VerticalFlip(0.5f);
  }
  const FieldProgram field = builder.RandomCrop(20, 21).Build();
  for (int64_t sample = 0; sample < 50; ++sample) {
    SampleMoves moves;
    DrawMoves(field, 1, 0, sample, &moves);
    for (int axis = 0; axis < 2; ++axis) {
      int32_t map[15];
      MapAxis(field, moves.axis[axis], 4, 15, map);
      for (int i = 0; i < 15; ++i) {
        ASSERT_EQ(map[i], MapBack(field, moves.axis[axis], 4 + i));
      }
    }
  }
}

}  // namespace
}  // namespace datasetd
