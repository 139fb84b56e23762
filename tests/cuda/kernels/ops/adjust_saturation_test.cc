#include "cuda/kernels/ops/adjust_saturation.h"

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

TEST(AdjustSaturationTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {0.0f, 0.3f, 0.95f, 1.0f, 1.7f, 20.0f}) {
      const AdjustSaturationDraw draw = {value, image.bound};
      EXPECT_LE(
          Difference(RunPointOp(image, draw, ApplyAdjustSaturation),
                     reference::AdjustSaturation(ToReference(image), value)),
          1e-5)
          << image.name << ", " << value;
    }
  }
}

TEST(AdjustSaturationTest, OneChannelStays) {
  float pixel[] = {300.0f};
  ApplyAdjustSaturation({0.0f, 255.0f}, 1, pixel);
  EXPECT_EQ(pixel[0], 300.0f);
}

TEST(AdjustSaturationTest, BlendsWithTheWholeGray) {
  // Gray is 99.99, of which 99 is kept: 3 * 100 - 2 * 99.
  float pixel[] = {100.0f, 100.0f, 100.0f};
  ApplyAdjustSaturation({3.0f, 255.0f}, 3, pixel);
  EXPECT_EQ(pixel[0], 102.0f);
}

}  // namespace
}  // namespace datasetd
