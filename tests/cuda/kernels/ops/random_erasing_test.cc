#include "cuda/kernels/ops/random_erasing.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/cuda/kernels/ops/op_image.h"
#include "tests/cuda/kernels/ops/op_runner.h"
#include "tests/reference/colour_reference.h"
#include "tests/testing/distribution.h"
#include "tests/testing/long_form.h"

namespace datasetd {
namespace {

const int kNumDraws = testing::IsFull() ? 100000 : 20000;
const RandomErasingParams kDefaults = {0.02f, 0.33f, 0.3f, 3.3f, false, {}};

RandomErasingDraw At(const RandomErasingParams& params, int64_t sample,
                     int height, int width) {
  return DrawRandomErasing(params, {21, 4, sample, 9}, height, width);
}

TEST(RandomErasingTest, ErasesTheDrawnBox) {
  RandomErasingParams params = kDefaults;
  params.value[0] = 0.5f;
  params.value[1] = 0.25f;
  params.value[2] = 0.125f;
  for (const OpImage& image : TestImages()) {
    const RandomErasingDraw draw = At(params, 1, image.height, image.width);
    const auto expected =
        reference::Erase(ToReference(image), draw.box.top, draw.box.left,
                         draw.box.height, draw.box.width, {0.5, 0.25, 0.125});
    EXPECT_EQ(Difference(RunCoordinateOp(image, draw, {}, ApplyRandomErasing),
                         expected),
              0.0)
        << image.name;
  }
}

TEST(RandomErasingTest, AreaIsUniformAndTheRatiosLogarithmToo) {
  // So large that rounding does not show, and every first try is taken.
  const RandomErasingParams params = {0.02f, 0.2f, 0.3f, 3.3f, false, {}};
  constexpr int kSide = 100000;
  std::vector<double> areas;
  std::vector<double> log_ratios;
  std::vector<double> tops;
  std::vector<double> lefts;
  for (int sample = 0; sample < kNumDraws; ++sample) {
    const EraseDraw box = At(params, sample, kSide, kSide).box;
    const double height = box.height;
    const double width = box.width;
    areas.push_back(height * width / kSide / kSide);
    log_ratios.push_back(std::log(height / width));
    tops.push_back(box.top / (kSide - height));
    lefts.push_back(box.left / (kSide - width));
  }
  EXPECT_LT(UniformKolmogorovSmirnov(areas, 0.02, 0.2), kMaxKolmogorovSmirnov);
  EXPECT_LT(UniformKolmogorovSmirnov(log_ratios, std::log(0.3), std::log(3.3)),
            kMaxKolmogorovSmirnov);
  EXPECT_LT(UniformKolmogorovSmirnov(tops, 0, 1), kMaxKolmogorovSmirnov);
  EXPECT_LT(UniformKolmogorovSmirnov(lefts, 0, 1), kMaxKolmogorovSmirnov);
  EXPECT_LT(IndependenceZ(areas, log_ratios), kMaxZ);
  EXPECT_LT(IndependenceZ(areas, tops), kMaxZ);
  EXPECT_LT(IndependenceZ(log_ratios, lefts), kMaxZ);
  EXPECT_LT(IndependenceZ(tops, lefts), kMaxZ);
}

TEST(RandomErasingTest, BoxesReachEachEdgeAndAreSmallerThanTheImage) {
  std::set<std::string> reached;
  for (int sample = 0; sample < kNumDraws; ++sample) {
    const EraseDraw box = At(kDefaults, sample, 20, 37).box;
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LT(box.height, 20);
    ASSERT_LT(box.width, 37);
    ASSERT_LE(box.top + box.height, 20);
    ASSERT_LE(box.left + box.width, 37);
    if (box.top == 0) reached.insert("top");
    if (box.left == 0) reached.insert("left");
    if (box.top + box.height == 20) reached.insert("bottom");
    if (box.left + box.width == 37) reached.insert("right");
  }
  EXPECT_EQ(reached, (std::set<std::string>{"bottom", "left", "right", "top"}));
}

TEST(RandomErasingTest, TriesTenTimes) {
  // A try fails if the box is as high or as wide as the image, in 1 of p.
  const RandomErasingParams params = {0.9f, 1.0f, 0.5f, 2.0f, false, {}};
  int64_t num_erased = 0;
  for (int sample = 0; sample < kNumDraws; ++sample) {
    num_erased += At(params, sample, 1000, 1000).box.height > 0;
  }
  // A box of area A is inside if |ln ratio| < -ln A. The probability is the
  // mean of -ln A / ln 2, for A uniform in [0.9, 1).
  const double mean = (1.0 - 0.9 + 0.9 * std::log(0.9)) / 0.1;
  const double taken = 1.0 - std::pow(1.0 - mean / std::log(2.0), 10);
  const double deviation = std::sqrt(kNumDraws * taken * (1 - taken));
  // A pixel's rounding moves the mean by less than 1%.
  EXPECT_NEAR(num_erased, kNumDraws * taken, 5 * deviation + 0.01 * kNumDraws);
}

TEST(RandomErasingTest, NothingIsErasedOfOnePixel) {
  for (int sample = 0; sample < 1000; ++sample) {
    EXPECT_EQ(At(kDefaults, sample, 1, 1).box.height, 0);
  }
}

TEST(RandomErasingTest, NormalNumbersAreNormal) {
  OpImage image;
  image.num_channels = 3;
  image.height = 400;
  image.width = 300;
  image.bound = 1.0f;
  image.values.assign(3 * 400 * 300, 9.0f);
  RandomErasingDraw draw = {};
  draw.box = {10, 20, 380, 264, {}};
  draw.image_width = 300;
  draw.is_normal = true;
  const OpImage erased =
      RunCoordinateOp(image, draw, {5, 6, 7, 8}, ApplyRandomErasing);
  std::vector<double> channels[3];
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 400; ++y) {
      for (int x = 0; x < 300; ++x) {
        const float value = erased.values[(c * 400 + y) * 300 + x];
        if (y >= 10 && y < 390 && x >= 20 && x < 284) {
          channels[c].push_back(value);
        } else {
          ASSERT_EQ(value, 9.0f);
        }
      }
    }
    EXPECT_LT(KolmogorovSmirnov(
                  channels[c],
                  [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }),
              kMaxKolmogorovSmirnov)
        << c;
  }
  EXPECT_LT(IndependenceZ(channels[0], channels[1]), kMaxZ);
  EXPECT_LT(IndependenceZ(channels[0], channels[2]), kMaxZ);
  EXPECT_LT(IndependenceZ(channels[1], channels[2]), kMaxZ);
  // Neighbours are independent, too.
  std::vector<double> next(channels[0].begin() + 1, channels[0].end());
  channels[0].pop_back();
  EXPECT_LT(IndependenceZ(channels[0], next), kMaxZ);
}

}  // namespace
}  // namespace datasetd
