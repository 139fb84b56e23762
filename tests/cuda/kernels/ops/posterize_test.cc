#include "cuda/kernels/ops/posterize.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

TEST(PosterizeTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const int value : {0, 1, 2, 4, 7, 8}) {
      const PosterizeDraw draw = {value, image.bound};
      EXPECT_LE(Difference(RunPointOp(image, draw, ApplyPosterize),
                           reference::Posterize(ToReference(image), value)),
                0.0)
          << image.name << ", " << value;
    }
  }
}

TEST(PosterizeTest, RoundsWhatIsNotWhole) {
  float pixel[] = {127.5f, 126.5f, 300.0f};
  ApplyPosterize({7, 255.0f}, 3, pixel);
  EXPECT_EQ(pixel[0], 128.0f);
  EXPECT_EQ(pixel[1], 126.0f);
  EXPECT_EQ(pixel[2], 254.0f);
}

TEST(PosterizeTest, FloatsBeyondTheEndsAreTheEnds) {
  float pixel[] = {-0.3f, 7.0f, NAN};
  ApplyPosterize({2, 1.0f}, 3, pixel);
  EXPECT_EQ(pixel[0], 0.0f);
  EXPECT_EQ(pixel[1], 0.75f);
  EXPECT_EQ(pixel[2], 0.0f);
}

}  // namespace
}  // namespace datasetd
