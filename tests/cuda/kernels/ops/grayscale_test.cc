#include "cuda/kernels/ops/grayscale.h"

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

TEST(GrayscaleTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const int value : {image.num_channels}) {
      const GrayscaleDraw draw = {value, image.bound};
      EXPECT_LE(Difference(RunPointOp(image, draw, ApplyGrayscale),
                           reference::Grayscale(ToReference(image),
                                                image.num_channels)),
                image.bound == 255.0f ? 0.0 : 1e-6)
          << image.name << ", " << value;
    }
  }
}

TEST(GrayscaleTest, ThreeChannelsBecomeOne) {
  float pixel[] = {10.0f, 200.0f, 30.0f};
  ApplyGrayscale({1, 255.0f}, 3, pixel);
  EXPECT_EQ(pixel[0], 123.0f);  // 2.989 + 117.4 + 3.42
  EXPECT_EQ(pixel[1], 200.0f);
}

TEST(GrayscaleTest, OneChannelBecomesThree) {
  float pixel[] = {10.0f, 0.0f, 0.0f};
  ApplyGrayscale({3, 255.0f}, 1, pixel);
  EXPECT_EQ(pixel[0], 10.0f);
  EXPECT_EQ(pixel[1], 10.0f);
  EXPECT_EQ(pixel[2], 10.0f);
}

}  // namespace
}  // namespace datasetd
