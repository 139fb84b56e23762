#include "cuda/kernels/ops/adjust_contrast.h"

#include <cmath>

#include "cuda/kernels/ops/atomics.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

const StatisticOp<AdjustContrastDraw, AdjustContrastStatistic,
                  AdjustContrastPartial>
    kOp = {InitAdjustContrast, AccumulateAdjustContrast<PlainAtomics>,
           MergeAdjustContrast<PlainAtomics>, FinishAdjustContrast,
           ApplyAdjustContrast};

TEST(AdjustContrastTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {0.0f, 0.3f, 0.95f, 1.0f, 1.7f, 20.0f}) {
      const AdjustContrastDraw draw = DrawAdjustContrast(
          {value, image.bound}, {}, image.height, image.width);
      EXPECT_LE(
          Difference(kOp.Run(image, draw, 1),
                     reference::AdjustContrast(ToReference(image), value)),
          1e-5)
          << image.name << ", " << value;
    }
  }
}

TEST(AdjustContrastTest, TheNumberOfRanksDoesNotShow) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {0.0f, 0.3f, 0.95f, 1.0f, 1.7f, 20.0f}) {
      const AdjustContrastDraw draw = DrawAdjustContrast(
          {value, image.bound}, {}, image.height, image.width);
      const OpImage alone = kOp.Run(image, draw, 1);
      for (const int num_ranks : {2, 7, 64}) {
        EXPECT_EQ(kOp.Run(image, draw, num_ranks).values, alone.values)
            << image.name << ", " << value;
      }
    }
  }
}

TEST(AdjustContrastTest, NoFloatOverflowsTheSum) {
  AdjustContrastStatistic statistic;
  InitAdjustContrast(&statistic);
  const AdjustContrastDraw draw = {0.5f, 1.0f, 0.0f};
  for (const float x : {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1.0f}) {
    AccumulateAdjustContrast<PlainAtomics>(draw, 1, &x, &statistic, nullptr);
  }
  EXPECT_EQ(statistic.sum, 1 << 22);
}

}  // namespace
}  // namespace datasetd
