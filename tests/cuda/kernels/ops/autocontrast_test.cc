#include "cuda/kernels/ops/autocontrast.h"

#include <cmath>
#include <vector>

#include "cuda/kernels/ops/atomics.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

const StatisticOp<AutocontrastDraw, AutocontrastStatistic, AutocontrastPartial>
    kOp = {InitAutocontrast, AccumulateAutocontrast<PlainAtomics>,
           MergeAutocontrast<PlainAtomics>, FinishAutocontrast,
           ApplyAutocontrast};

TEST(AutocontrastTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {1.0f}) {
      const AutocontrastDraw draw = DrawAutocontrast({value * image.bound}, {},
                                                     image.height, image.width);
      EXPECT_LE(Difference(kOp.Run(image, draw, 1),
                           reference::Autocontrast(ToReference(image))),
                image.bound == 255.0f ? 0.0 : 1e-5)
          << image.name << ", " << value;
    }
  }
}

TEST(AutocontrastTest, TheNumberOfRanksDoesNotShow) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {1.0f}) {
      const AutocontrastDraw draw = DrawAutocontrast({value * image.bound}, {},
                                                     image.height, image.width);
      const OpImage alone = kOp.Run(image, draw, 1);
      for (const int num_ranks : {2, 7, 64}) {
        EXPECT_EQ(kOp.Run(image, draw, num_ranks).values, alone.values)
            << image.name << ", " << value;
      }
    }
  }
}

TEST(AutocontrastTest, NanIsNoEnd) {
  OpImage image;
  image.num_channels = 1;
  image.height = 1;
  image.width = 3;
  image.bound = 1.0f;
  image.values = {0.25f, NAN, 0.75f};
  const OpImage result = kOp.Run(image, {1.0f, {}, {}}, 2);
  EXPECT_EQ(result.values[0], 0.0f);
  EXPECT_TRUE(std::isnan(result.values[1]));
  EXPECT_EQ(result.values[2], 1.0f);
  image.values = {NAN, NAN, NAN};
  EXPECT_TRUE(std::isnan(kOp.Run(image, {1.0f, {}, {}}, 1).values[0]));
}

TEST(AutocontrastTest, NegativeFloatsAreBelowPositiveOnes) {
  OpImage image;
  image.num_channels = 1;
  image.height = 1;
  image.width = 4;
  image.bound = 1.0f;
  image.values = {-3.0f, -1.0f, 0.0f, 1.0f};
  EXPECT_EQ(kOp.Run(image, {1.0f, {}, {}}, 3).values,
            (std::vector<float>{0.0f, 0.5f, 0.75f, 1.0f}));
}

}  // namespace
}  // namespace datasetd
