#include "cuda/kernels/ops/gaussian_noise.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/testing/distribution.h"

namespace datasetd {
namespace {

constexpr DrawKey kKey = {5, 6, 7, 8};

OpImage Constant(float value) {
  OpImage image;
  image.num_channels = 4;
  image.height = 300;
  image.width = 200;
  image.bound = 1.0f;
  image.values.assign(4 * 300 * 200, value);
  return image;
}

OpImage AddNoise(const OpImage& image, const GaussianNoiseParams& params) {
  return RunCoordinateOp(
      image, DrawGaussianNoise(params, kKey, image.height, image.width), kKey,
      ApplyGaussianNoise);
}

std::vector<double> Channel(const OpImage& image, int c) {
  const auto begin = image.values.begin() + c * image.plane_size();
  return {begin, begin + image.plane_size()};
}

TEST(GaussianNoiseTest, NoiseHasTheMeanAndTheDeviation) {
  const OpImage noisy = AddNoise(Constant(0.5f), {0.25f, 0.125f, false});
  for (int c = 0; c < 4; ++c) {
    std::vector<double> values = Channel(noisy, c);
    EXPECT_LT(KolmogorovSmirnov(
                  values,
                  [](double x) {
                    return std::erfc((0.75 - x) / 0.125 / std::sqrt(2.0)) / 2;
                  }),
              kMaxKolmogorovSmirnov)
        << c;
    for (int other = 0; other < c; ++other) {
      EXPECT_LT(IndependenceZ(values, Channel(noisy, other)), kMaxZ);
    }
    // Neighbours along both axes are independent, too.
    for (const int step : {1, noisy.width}) {
      std::vector<double> next(values.begin() + step, values.end());
      std::vector<double> first(values.begin(), values.end() - step);
      EXPECT_LT(IndependenceZ(first, next), kMaxZ) << c << ", " << step;
    }
  }
}

TEST(GaussianNoiseTest, ClipLimitsToZeroAndOne) {
  const OpImage free = AddNoise(Constant(0.5f), {0.0f, 1.0f, false});
  const OpImage clipped = AddNoise(Constant(0.5f), {0.0f, 1.0f, true});
  int64_t num_changed = 0;
  for (size_t i = 0; i < free.values.size(); ++i) {
    const float x = free.values[i];
    ASSERT_EQ(clipped.values[i], x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x);
    num_changed += clipped.values[i] != x;
  }
  // Beyond half a deviation on either side: 62%.
  EXPECT_NEAR(static_cast<double>(num_changed) /
                  static_cast<double>(free.values.size()),
              0.617, 0.01);
}

TEST(GaussianNoiseTest, WithoutADeviationTheMeanIsAdded) {
  const OpImage moved = AddNoise(Constant(0.5f), {0.25f, 0.0f, true});
  for (const float value : moved.values) ASSERT_EQ(value, 0.75f);
}

}  // namespace
}  // namespace datasetd
