#include "cuda/kernels/ops/gaussian_blur.h"

#include <cmath>
#include <utility>
#include <vector>

#include "cuda/kernels/chain/chain_windows.h"
#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"
#include "tests/testing/distribution.h"
#include "tests/testing/long_form.h"

namespace datasetd {
namespace {

using testing::RunsCase;

const int kNumDraws = testing::IsFull() ? 100000 : 20000;

// Computes a pixel as WindowLanes does.
template <typename Window>
float BlurPixel(const Window& window, const float* plane, int height, int width,
                int y, int x) {
  if (x < window.Margin() || x >= width - window.Margin()) {
    return window.Apply(plane, height, width, y, x);
  }
  float to;
  window.ApplyRun(plane, height, width, y, x, 1, &to);
  return to;
}

OpImage Blur(const OpImage& image, int radius_x, int radius_y, float sigma) {
  const GaussianBlurDraw draw = DrawGaussianBlur(
      {radius_x, radius_y, sigma, sigma}, {}, image.height, image.width);
  const auto blur_x = [](const GaussianBlurDraw& of, const float* plane,
                         int height, int width, int y, int x) {
    return BlurPixel(BlurWindowX{of}, plane, height, width, y, x);
  };
  const auto blur_y = [](const GaussianBlurDraw& of, const float* plane,
                         int height, int width, int y, int x) {
    return BlurPixel(BlurWindowY{of}, plane, height, width, y, x);
  };
  return RunWindowOp(RunWindowOp(image, draw, +blur_x), draw, +blur_y);
}

TEST(GaussianBlurTest, EqualsTheReference) {
  size_t sum = 0;
  for (const OpImage& image : TestImages()) {
    ++sum;
    for (const auto& [radius_x, radius_y] :
         {std::pair{0, 0}, {1, 1}, {2, 0}, {1, 11}, {21, 21}}) {
      ++sum;
      if (radius_x >= image.width || radius_y >= image.height) continue;
      // The reference is slow.
      if (radius_x == 21 && image.height * image.num_channels > 31) continue;
      for (const float sigma : {0.01f, 0.1f, 0.8f, 2.0f, 50.0f}) {
        if (!RunsCase(++sum, 5)) continue;
        EXPECT_LE(Difference(Blur(image, radius_x, radius_y, sigma),
                             reference::GaussianBlur(ToReference(image),
                                                     2 * radius_x + 1,
                                                     2 * radius_y + 1, sigma)),
                  1e-5)
            << image.name << ", " << radius_x << ", " << radius_y << ", "
            << sigma;
      }
    }
  }
}

TEST(GaussianBlurTest, SigmaIsUniform) {
  const GaussianBlurParams params = {2, 2, 0.1f, 2.0f};
  std::vector<double> sigmas;
  for (int sample = 0; sample < kNumDraws; ++sample) {
    sigmas.push_back(DrawGaussianBlurSigma(params, {7, 3, sample, 5}));
  }
  EXPECT_LT(UniformKolmogorovSmirnov(sigmas, 0.1, 2.0), kMaxKolmogorovSmirnov);
}

TEST(GaussianBlurTest, WeightsAreOfTheDrawnSigma) {
  const GaussianBlurParams params = {3, 3, 0.1f, 2.0f};
  for (int sample = 0; sample < 100; ++sample) {
    const DrawKey key = {7, 3, sample, 5};
    const double sigma = DrawGaussianBlurSigma(params, key);
    const GaussianBlurDraw draw = DrawGaussianBlur(params, key, 9, 9);
    EXPECT_NEAR(draw.weights[1], std::exp(-2.0 / (sigma * sigma)), 1e-7);
  }
}

}  // namespace
}  // namespace datasetd
