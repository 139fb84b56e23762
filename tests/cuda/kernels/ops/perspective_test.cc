#include "cuda/kernels/ops/perspective.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

PerspectiveParams Params(int height, int width, double distortion_scale) {
  PerspectiveParams params = {};
  params.out_middle[0] = 0.5f * static_cast<float>(width) - 0.5f;
  params.out_middle[1] = 0.5f * static_cast<float>(height) - 0.5f;
  params.reach[0] = static_cast<int32_t>(distortion_scale * (width / 2));
  params.reach[1] = static_cast<int32_t>(distortion_scale * (height / 2));
  return params;
}

PerspectiveDraw At(const PerspectiveParams& params, int64_t sample, int height,
                   int width) {
  return DrawPerspective(params, {3, 4, sample, 5}, height, width);
}

// The source of the output's point (x, y), both with corners of pixels at
// integers, as torchvision's startpoints and endpoints.
void Map(const PerspectiveParams& params, const PerspectiveDraw& draw, double x,
         double y, double* source_x, double* source_y) {
  const double at[3] = {x - 0.5 - params.out_middle[0],
                        y - 0.5 - params.out_middle[1], 1.0};
  double sum[3] = {};
  for (int i = 0; i < 3; ++i) {
    for (int k = 0; k < 3; ++k) sum[i] += draw.matrix[i][k] * at[k];
  }
  *source_x = sum[0] / sum[2] + 0.5;
  *source_y = sum[1] / sum[2] + 0.5;
}

TEST(PerspectiveTest, DrawnCornersComeFromTheImagesCorners) {
  for (const auto& [height, width] :
       {std::pair(31, 44), std::pair(224, 224), std::pair(2, 7)}) {
    for (const double scale : {0.0, 0.3, 0.8}) {
      const PerspectiveParams params = Params(height, width, scale);
      for (int64_t sample = 0; sample < 200; ++sample) {
        const PerspectiveDraw draw = At(params, sample, height, width);
        const double corners[4][2] = {{0, 0},
                                      {width - 1.0, 0},
                                      {width - 1.0, height - 1.0},
                                      {0, height - 1.0}};
        for (int i = 0; i < 4; ++i) {
          double x;
          double y;
          Map(params, draw, draw.end[i][0], draw.end[i][1], &x, &y);
          const double size = std::max(height, width);
          EXPECT_NEAR(x, corners[i][0], 2e-5 * size) << sample << ", " << i;
          EXPECT_NEAR(y, corners[i][1], 2e-5 * size) << sample << ", " << i;
        }
      }
    }
  }
}

TEST(PerspectiveTest, CornersStayWithinTheirReach) {
  const PerspectiveParams params = Params(31, 44, 0.5);
  EXPECT_EQ(params.reach[0], 11);
  EXPECT_EQ(params.reach[1], 7);
  for (int64_t sample = 0; sample < 10000; ++sample) {
    const PerspectiveDraw draw = At(params, sample, 31, 44);
    for (int i = 0; i < 4; ++i) {
      const int right = i == 1 || i == 2 ? 43 - 11 : 0;
      const int bottom = i >= 2 ? 30 - 7 : 0;
      ASSERT_GE(draw.end[i][0], right);
      ASSERT_LE(draw.end[i][0], right + 11);
      ASSERT_GE(draw.end[i][1], bottom);
      ASSERT_LE(draw.end[i][1], bottom + 7);
    }
  }
}

// Corners on a line, and images of one row or column.
TEST(PerspectiveTest, WithoutAMapItIsTheIdentity) {
  const auto expect_identity = [](const PerspectiveParams& params,
                                  const PerspectiveDraw& draw) {
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k < 3; ++k) {
        const float expected = i == k            ? 1.0f
                               : i < 2 && k == 2 ? params.out_middle[i]
                                                 : 0.0f;
        ASSERT_EQ(draw.matrix[i][k], expected);
      }
    }
  };
  for (const auto& [height, width] :
       {std::pair(1, 1), std::pair(1, 9), std::pair(9, 1)}) {
    const PerspectiveParams params = Params(height, width, 1.0);
    for (int64_t sample = 0; sample < 100; ++sample) {
      expect_identity(params, At(params, sample, height, width));
    }
  }
  // For 2x2 pixels, many draws have corners on a line.
  const PerspectiveParams params = Params(2, 2, 1.0);
  int num_degenerate = 0;
  for (int64_t sample = 0; sample < 1000; ++sample) {
    const PerspectiveDraw draw = At(params, sample, 2, 2);
    const auto cross = [&](int a, int b, int c) {
      return (draw.end[b][0] - draw.end[a][0]) *
                 (draw.end[c][1] - draw.end[a][1]) -
             (draw.end[b][1] - draw.end[a][1]) *
                 (draw.end[c][0] - draw.end[a][0]);
    };
    if (cross(0, 1, 2) != 0 && cross(0, 1, 3) != 0 && cross(0, 2, 3) != 0 &&
        cross(1, 2, 3) != 0) {
      continue;
    }
    ++num_degenerate;
    expect_identity(params, draw);
  }
  EXPECT_GT(num_degenerate, 500);
}

}  // namespace
}  // namespace datasetd
