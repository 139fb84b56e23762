#include "cuda/kernels/ops/invert.h"

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

TEST(InvertTest, EqualsTheReference) {
  for (const OpImage& image : TestImages()) {
    for (const float value : {1.0f}) {
      const InvertDraw draw = {value * image.bound};
      EXPECT_LE(Difference(RunPointOp(image, draw, ApplyInvert),
                           reference::Invert(ToReference(image))),
                image.bound == 255.0f ? 0.0 : 0x1p-24)
          << image.name << ", " << value;
    }
  }
}

}  // namespace
}  // namespace datasetd
