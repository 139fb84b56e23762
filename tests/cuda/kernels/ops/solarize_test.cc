#include "cuda/kernels/ops/solarize.h"

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

TEST(SolarizeTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {0.0f, 0.25f, 128.0f / 255, 1.0f}) {
      const SolarizeDraw draw = {value * image.bound, image.bound};
      EXPECT_LE(Difference(RunPointOp(image, draw, ApplySolarize),
                           reference::Solarize(ToReference(image),
                                               value * image.bound)),
                image.bound == 255.0f ? 0.0 : 0x1p-24)
          << image.name << ", " << value;
    }
  }
}

}  // namespace
}  // namespace datasetd
