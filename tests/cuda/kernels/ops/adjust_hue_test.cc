#include "cuda/kernels/ops/adjust_hue.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

TEST(AdjustHueTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const float value :
         {-0.5f, -0.49f, -0.2f, -0.01f, 0.0f, 0.05f, 1.0f / 3, 0.5f}) {
      const AdjustHueDraw draw = {value, image.bound};
      EXPECT_LE(Difference(RunPointOp(image, draw, ApplyAdjustHue),
                           reference::AdjustHue(ToReference(image), value)),
                1e-5)
          << image.name << ", " << value;
    }
  }
}

TEST(AdjustHueTest, TurnsThePrimaries) {
  const float primaries[3][3] = {{255, 0, 0}, {0, 255, 0}, {0, 0, 255}};
  for (int i = 0; i < 3; ++i) {
    float pixel[3] = {primaries[i][0], primaries[i][1], primaries[i][2]};
    ApplyAdjustHue({1.0f / 3, 255.0f}, 3, pixel);
    for (int c = 0; c < 3; ++c) {
      EXPECT_NEAR(pixel[c], primaries[(i + 1) % 3][c], 1e-3);
    }
  }
}

TEST(AdjustHueTest, AnyFloatEndsAsSomeFloat) {
  const float floats[] = {0.0f,  -0.0f,    1e-40f,    1.0f, -2.0f,
                          3e38f, INFINITY, -INFINITY, NAN};
  for (const float r : floats) {
    for (const float g : floats) {
      for (const float b : floats) {
        float pixel[] = {r, g, b};
        ApplyAdjustHue({0.1f, 1.0f}, 3, pixel);
        float again[] = {r, g, b};
        ApplyAdjustHue({0.1f, 1.0f}, 3, again);
        for (int c = 0; c < 3; ++c) {
          EXPECT_TRUE(pixel[c] == again[c] ||
                      (std::isnan(pixel[c]) && std::isnan(again[c])));
        }
      }
    }
  }
}

}  // namespace
}  // namespace datasetd
