#include "cuda/kernels/ops/erase.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"

namespace datasetd {
namespace {

TEST(EraseTest, EqualsTheReference) {
  struct Box {
    int top, left, height, width;
  };
  for (const OpImage& image : TestImages()) {
    for (const Box& box : {Box{0, 0, 1, 1},
                           {0, 0, 0, 5},
                           {1, 2, 1, 1},
                           {-3, -2, 5, 4},
                           {5, 7, 20, 3},
                           {0, 0, 200, 200},
                           {20, 30, 2147483647, 2147483647}}) {
      const EraseDraw draw = {
          box.top, box.left, box.height, box.width, {0.1f, 0.2f, 0.3f, 0.4f}};
      const auto expected = reference::Erase(
          ToReference(image), box.top, box.left, std::min(box.height, 1000),
          std::min(box.width, 1000), {0.1f, 0.2f, 0.3f});
      EXPECT_EQ(
          Difference(RunCoordinateOp(image, draw, {}, ApplyErase), expected),
          0.0)
          << image.name << ", " << box.top << ", " << box.height;
    }
  }
}

}  // namespace
}  // namespace datasetd
