#include "cuda/kernels/ops/adjust_sharpness.h"

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

TEST(AdjustSharpnessTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {0.0f, 0.3f, 0.95f, 1.0f, 1.7f, 20.0f}) {
      const AdjustSharpnessDraw draw = {value, image.bound};
      EXPECT_LE(
          Difference(RunWindowOp(image, draw, ApplyAdjustSharpness),
                     reference::AdjustSharpness(ToReference(image), value)),
          1e-5)
          << image.name << ", " << value;
    }
  }
}

}  // namespace
}  // namespace datasetd
