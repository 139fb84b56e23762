#include "cuda/kernels/math/axis_taps.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

AxisResample Axis(int32_t in_size, int32_t out_size,
                  InterpolationMode interpolation) {
  return {in_size, out_size, interpolation, /*antialias=*/true};
}

TEST(AxisTapsTest, TheFilterGrowsWithTheScale) {
  EXPECT_EQ(NumTaps(Axis(100, 100, InterpolationMode::kBilinear)), 2);
  EXPECT_EQ(NumTaps(Axis(100, 50, InterpolationMode::kBilinear)), 4);
  EXPECT_EQ(NumTaps(Axis(100, 30, InterpolationMode::kBilinear)), 7);
  EXPECT_EQ(NumTaps(Axis(100, 30, InterpolationMode::kBicubic)), 14);
  EXPECT_EQ(NumTaps(Axis(100, 1, InterpolationMode::kBicubic)), 100);
  EXPECT_EQ(NumTaps(Axis(3, 300, InterpolationMode::kBicubic)), 3);
}

// The double width of a filter was once cast to an int32_t that does not have
// it: the number of taps was negative.
TEST(AxisTapsTest, TheNumberOfTapsIsThatOfTheLongestAxisAtMost) {
  for (const int32_t size :
       {(1 << 24) - 1, 1 << 24, (1 << 28) + 1, 1 << 29, (1 << 29) + 1, 1 << 30,
        (1 << 30) + 1, std::numeric_limits<int32_t>::max()}) {
    EXPECT_EQ(NumTaps(Axis(size, 1, InterpolationMode::kBilinear)), size);
    EXPECT_EQ(NumTaps(Axis(size, 1, InterpolationMode::kBicubic)), size);
    EXPECT_EQ(NumTaps(Axis(size, size, InterpolationMode::kBicubic)), 4);
    EXPECT_EQ(NumTaps(Axis(1, size, InterpolationMode::kBicubic)), 1);
  }
}

// Ends beyond the axis must be compared before they are cast.
TEST(AxisTapsTest, TapsOfALongAxisLieOnIt) {
  for (const int32_t size : {1 << 24, 1 << 29, 1 << 30}) {
    // The axis keeps its size, so that taps are few.
    for (const InterpolationMode mode :
         {InterpolationMode::kNearest, InterpolationMode::kNearestExact,
          InterpolationMode::kBilinear, InterpolationMode::kBicubic}) {
      const AxisResample axis = Axis(size, size, mode);
      const int32_t num_taps = NumTaps(axis);
      const AxisTapMaker maker(axis);
      for (const int32_t at : {0, 1, size / 2, size - 2, size - 1}) {
        std::vector<int32_t> index(static_cast<size_t>(num_taps), -1);
        std::vector<float> weight(index.size());
        maker.Make(at, 1, index.data(), weight.data());
        float sum = 0.0f;
        for (size_t t = 0; t < index.size(); ++t) {
          EXPECT_GE(index[t], 0);
          EXPECT_LT(index[t], size);
          sum += weight[t];
        }
        EXPECT_NEAR(sum, 1.0f, 1e-5f);
      }
    }
  }
}

}  // namespace
}  // namespace datasetd
