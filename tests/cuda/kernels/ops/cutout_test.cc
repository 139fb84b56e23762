#include "cuda/kernels/ops/cutout.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"
#include "tests/testing/distribution.h"
#include "tests/testing/long_form.h"

namespace datasetd {
namespace {

const int kNumDraws = testing::IsFull() ? 100000 : 20000;

TEST(CutoutTest, ErasesTheDrawnSquare) {
  for (const OpImage& image : TestImages()) {
    for (const int size : {1, 2, 8, 31}) {
      if (size > image.height || size > image.width) continue;
      const CutoutParams params = {size, {0.1f, 0.2f, 0.3f, 0.4f}};
      const DrawKey key = {1, 2, 3, 4};
      const CutoutDraw draw =
          DrawCutout(params, key, image.height, image.width);
      EXPECT_EQ(draw.height, size);
      EXPECT_EQ(draw.width, size);
      const auto expected =
          reference::Erase(ToReference(image), draw.top, draw.left, size, size,
                           {0.1f, 0.2f, 0.3f});
      EXPECT_EQ(
          Difference(RunCoordinateOp(image, draw, key, ApplyCutout), expected),
          0.0)
          << image.name;
    }
  }
}

TEST(CutoutTest, EveryPlaceIsEquallyLikely) {
  // 6 x 9 places of a 3 x 3 square in 8 x 11.
  std::vector<int64_t> counts(6 * 9);
  for (int sample = 0; sample < kNumDraws; ++sample) {
    const CutoutDraw draw = DrawCutout({3, {}}, {11, 5, sample, 2}, 8, 11);
    ASSERT_GE(draw.top, 0);
    ASSERT_LT(draw.top, 6);
    ASSERT_GE(draw.left, 0);
    ASSERT_LT(draw.left, 9);
    ++counts[draw.top * 9 + draw.left];
  }
  EXPECT_LT(EquallyLikelyZ(counts), kMaxZ);
}

}  // namespace
}  // namespace datasetd
