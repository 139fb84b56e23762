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
  AdjustContrastPartial partial;
  const AdjustContrastDraw draw = {0.5f, 1.0f, 0.0f};
  for (const float x : {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1.0f}) {
    AccumulateAdjustContrast<PlainAtomics>(draw, 1, &x, &partial, nullptr);
  }
  partial.Settle();
  // A NaN counts as the least.
  EXPECT_EQ(partial.sum, -255 * (int64_t{1} << 22));
}

TEST(AdjustContrastTest, ABlockOfExtremesFitsBetweenTwoSettlements) {
  for (const float x : {300.0f, -300.0f, -1e-3f}) {
    AdjustContrastPartial partial;
    const AdjustContrastDraw draw = {0.5f, 1.0f, 0.0f};
    int64_t expected = 0;
    for (int block = 0; block < 3; ++block) {
      for (int i = 0; i < 64; ++i) {
        AccumulateAdjustContrast<PlainAtomics>(draw, 1, &x, &partial, nullptr);
        const double within = x < -256.0f ? -256.0 : x > 256.0f ? 256.0 : x;
        expected += static_cast<int64_t>(within * (1 << 22));
      }
      partial.Settle();
    }
    EXPECT_EQ(partial.sum, expected) << x;
  }
}

}  // namespace
}  // namespace datasetd
