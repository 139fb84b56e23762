// What feeds draw, from explain, against the distributions that the ops state:
// 100,000 samples each, with fixed seeds. The bounds are of
// tests/testing/distribution.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/core/explain.h"
#include "server/core/pipeline.h"
#include "tests/testing/distribution.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;

constexpr int64_t kNumSamples = 100000;
// So large that rounding to pixels does not show.
constexpr int64_t kSide = 10000;

// A feed of one image field.
class Feed {
 public:
  Feed(int64_t height, int64_t width, std::vector<TransformSpec> ops)
      : program_(std::make_unique<AugmentProgram>()) {
    const FieldSpec field = {.name = "image",
                             .dtype = Dtype::kUint8,
                             .shape = {height, width, 3},
                             .is_image = true};
    auto compiled = CompileField(field, 0, ops, Layout::kNchw);
    EXPECT_THAT(compiled.status(), IsOk());
    program_->seed = 20;
    program_->num_fields = 1;
    if (compiled.ok()) program_->fields[0] = *compiled;
  }

  std::vector<OpDraw> At(uint64_t epoch, int64_t sample) const {
    auto draws = ExplainSample(*program_, epoch, sample);
    EXPECT_THAT(draws.status(), IsOk());
    return draws.ok() ? *std::move(draws) : std::vector<OpDraw>{};
  }

  // Number `index` of `parameter` of the op at `position`, for each sample from
  // `first` on.
  std::vector<double> Collect(int position, const std::string& parameter,
                              int index = 0, uint64_t epoch = 1,
                              int64_t first = 0) const {
    std::vector<double> values;
    for (int64_t i = 0; i < kNumSamples; ++i) {
      for (const OpDraw& draw : At(epoch, first + i)) {
        if (draw.position != position) continue;
        for (const auto& [name, numbers] : draw.parameters) {
          if (name == parameter) values.push_back(numbers[index]);
        }
      }
    }
    EXPECT_EQ(values.size(), kNumSamples) << parameter;
    return values;
  }

  // Whether an op is applied, for each sample, by the op's position.
  std::map<int, std::vector<bool>> Applied(uint64_t epoch = 1) const {
    std::map<int, std::vector<bool>> applied;
    for (int64_t i = 0; i < kNumSamples; ++i) {
      for (const OpDraw& draw : At(epoch, i)) {
        applied[draw.position].push_back(draw.is_applied);
      }
    }
    for (const auto& [position, samples] : applied) {
      EXPECT_EQ(samples.size(), kNumSamples) << position;
    }
    return applied;
  }

 private:
  std::unique_ptr<AugmentProgram> program_;
};

// How far a count is from n * p, in standard deviations.
double BinomialZ(int64_t count, double n, double p) {
  return (static_cast<double>(count) - n * p) / std::sqrt(n * p * (1 - p));
}

double AppliedZ(const std::vector<bool>& applied, double p) {
  return BinomialZ(std::count(applied.begin(), applied.end(), true),
                   static_cast<double>(applied.size()), p);
}

// The same of the samples where both are applied.
double BothZ(const std::vector<bool>& a, const std::vector<bool>& b, double p) {
  int64_t both = 0;
  for (size_t i = 0; i < a.size(); ++i) both += a[i] && b[i];
  return BinomialZ(both, static_cast<double>(a.size()), p * p);
}

void ExpectUniform(const std::vector<double>& values, double low, double high) {
  EXPECT_GE(*std::min_element(values.begin(), values.end()), low - 1e-6);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), high + 1e-6);
  EXPECT_LT(UniformKolmogorovSmirnov(values, low, high), kMaxKolmogorovSmirnov);
}

TEST(ExplainDistributionTest, EveryGateOpensWithItsProbability) {
  constexpr double kP = 0.3;
  const Feed feed(
      16, 16,
      {RandomHorizontalFlipSpec{.p = kP}, RandomVerticalFlipSpec{.p = kP},
       RandomGrayscaleSpec{.p = kP}, RandomInvertSpec{.p = kP},
       RandomPosterizeSpec{.bits = 3, .p = kP},
       RandomSolarizeSpec{.threshold = 9, .p = kP},
       RandomAdjustSharpnessSpec{.sharpness_factor = 2, .p = kP},
       RandomAutocontrastSpec{.p = kP}, RandomEqualizeSpec{.p = kP},
       RandomErasingSpec{.p = kP}});
  const std::map<int, std::vector<bool>> applied = feed.Applied();
  const std::map<int, std::vector<bool>> next_epoch = feed.Applied(2);
  ASSERT_EQ(applied.size(), 10u);
  for (const auto& [op, samples] : applied) {
    EXPECT_LT(std::fabs(AppliedZ(samples, kP)), kMaxZ) << op;
    EXPECT_LT(std::fabs(BothZ(samples, next_epoch.at(op), kP)), kMaxZ) << op;
    std::vector<bool> next_sample(samples.begin() + 1, samples.end());
    next_sample.push_back(samples[0]);
    EXPECT_LT(std::fabs(BothZ(samples, next_sample, kP)), kMaxZ) << op;
    for (int other = 0; other < op; ++other) {
      EXPECT_LT(std::fabs(BothZ(samples, applied.at(other), kP)), kMaxZ)
          << op << ", " << other;
    }
  }
}

TEST(ExplainDistributionTest, RandomApplyIsAllOrNothing) {
  RandomApplySpec group;
  group.transforms = {InvertSpec{}, RandomGrayscaleSpec{.p = 0.5}};
  group.p = 0.6;
  const Feed feed(16, 16, {group});
  const std::map<int, std::vector<bool>> applied = feed.Applied();
  const std::vector<bool>& invert = applied.at(1);
  const std::vector<bool>& grayscale = applied.at(2);
  EXPECT_LT(std::fabs(AppliedZ(invert, 0.6)), kMaxZ);
  EXPECT_LT(std::fabs(AppliedZ(grayscale, 0.3)), kMaxZ);
  for (size_t i = 0; i < invert.size(); ++i) {
    ASSERT_TRUE(invert[i] || !grayscale[i]) << i;
  }
}

TEST(ExplainDistributionTest, AlternatingFlipAlternates) {
  const Feed feed(16, 16, {AlternatingFlipSpec{}});
  const std::vector<bool> first = feed.Applied(1).at(0);
  EXPECT_LT(std::fabs(AppliedZ(first, 0.5)), kMaxZ);
  std::vector<bool> second = feed.Applied(2).at(0);
  second.flip();
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, feed.Applied(3).at(0));
}

TEST(ExplainDistributionTest, RandomCropTakesEveryPlaceEquallyOften) {
  const Feed feed(
      16, 20,
      {RandomCropSpec{.height = 12, .width = 14, .padding = {1, 2, 1, 2}}});
  // (16 + 4 - 12 + 1) x (20 + 2 - 14 + 1) places.
  std::vector<int64_t> counts(9 * 9);
  for (int64_t sample = 0; sample < kNumSamples; ++sample) {
    const std::vector<OpDraw> draws = feed.At(1, sample);
    const OpDraw& crop = draws.back();
    ASSERT_EQ(crop.name, "Crop");
    const int64_t top = static_cast<int64_t>(crop.parameters[0].second[0]);
    const int64_t left = static_cast<int64_t>(crop.parameters[1].second[0]);
    ASSERT_TRUE(top >= 0 && top < 9 && left >= 0 && left < 9);
    ++counts[top * 9 + left];
  }
  EXPECT_LT(EquallyLikelyZ(counts), kMaxZ);
}

TEST(ExplainDistributionTest, RandomResizedCropsAreaRatioAndPlace) {
  const Feed feed(kSide, kSide,
                  {RandomResizedCropSpec{.height = 32,
                                         .width = 32,
                                         .scale = {0.08, 0.4},
                                         .ratio = {0.75, 4.0 / 3.0}}});
  const std::vector<double> heights = feed.Collect(0, "height");
  const std::vector<double> widths = feed.Collect(0, "width");
  std::vector<double> areas;
  std::vector<double> log_ratios;
  std::vector<double> tops = feed.Collect(0, "top");
  std::vector<double> lefts = feed.Collect(0, "left");
  for (size_t i = 0; i < heights.size(); ++i) {
    areas.push_back(heights[i] * widths[i] / kSide / kSide);
    log_ratios.push_back(std::log(widths[i] / heights[i]));
    tops[i] /= kSide - heights[i];
    lefts[i] /= kSide - widths[i];
  }
  // Sides are whole pixels, of at least 2,000.
  EXPECT_LT(UniformKolmogorovSmirnov(areas, 0.08, 0.4), kMaxKolmogorovSmirnov);
  EXPECT_LT(
      UniformKolmogorovSmirnov(log_ratios, std::log(0.75), std::log(4.0 / 3)),
      kMaxKolmogorovSmirnov);
  ExpectUniform(tops, 0, 1);
  ExpectUniform(lefts, 0, 1);
  EXPECT_LT(IndependenceZ(areas, log_ratios), kMaxZ);
  EXPECT_LT(IndependenceZ(areas, tops), kMaxZ);
  EXPECT_LT(IndependenceZ(log_ratios, lefts), kMaxZ);
  EXPECT_LT(IndependenceZ(tops, lefts), kMaxZ);
}

TEST(ExplainDistributionTest, RandomRotationsAngle) {
  // Explain's angle is clockwise, the op's the other way.
  const Feed feed(16, 16,
                  {RandomRotationSpec{.degrees = {-30, 20}},
                   RandomRotationSpec{.degrees = {-30, 20}}});
  const std::vector<double> angles = feed.Collect(0, "angle");
  ExpectUniform(angles, -20, 30);
  EXPECT_LT(IndependenceZ(angles, feed.Collect(1, "angle")), kMaxZ);
  EXPECT_LT(IndependenceZ(angles, feed.Collect(0, "angle", 0, 2)), kMaxZ);
  EXPECT_LT(IndependenceZ(angles, feed.Collect(0, "angle", 0, 1, 1)), kMaxZ);
}

TEST(ExplainDistributionTest, RandomAffinesParameters) {
  RandomAffineSpec affine;
  affine.degrees = {-10, 50};
  affine.translate = {.x = 0.2, .y = 0.4};
  affine.scale = {.min = 0.5, .max = 1.75};
  affine.shear_x = {.min = -5, .max = 10};
  affine.shear_y = {.min = 0, .max = 3};
  const Feed feed(kSide, kSide, {affine});
  const std::vector<std::vector<double>> drawn = {
      feed.Collect(0, "angle"),        feed.Collect(0, "translate", 0),
      feed.Collect(0, "translate", 1), feed.Collect(0, "scale"),
      feed.Collect(0, "shear", 0),     feed.Collect(0, "shear", 1)};
  ExpectUniform(drawn[0], -10, 50);
  ExpectUniform(drawn[1], -0.2 * kSide, 0.2 * kSide);
  ExpectUniform(drawn[2], -0.4 * kSide, 0.4 * kSide);
  ExpectUniform(drawn[3], 0.5, 1.75);
  ExpectUniform(drawn[4], -5, 10);
  ExpectUniform(drawn[5], 0, 3);
  for (size_t i = 0; i < drawn.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_LT(IndependenceZ(drawn[i], drawn[j]), kMaxZ) << i << ", " << j;
    }
  }
}

TEST(ExplainDistributionTest, ColorJittersFactorsAndOrder) {
  ColorJitterSpec jitter;
  jitter.brightness = {.min = 0.6, .max = 1.4};
  jitter.contrast = {.min = 0.2, .max = 1.8};
  jitter.saturation = {.min = 0, .max = 3};
  jitter.hue = {.min = -0.1, .max = 0.3};
  const Feed feed(16, 16, {jitter});
  std::map<std::string, std::vector<double>> factors;
  std::map<std::vector<std::string>, int64_t> orders;
  for (int64_t sample = 0; sample < kNumSamples; ++sample) {
    std::vector<std::string> order;
    for (const OpDraw& draw : feed.At(1, sample)) {
      order.push_back(draw.name);
      factors[draw.name].push_back(draw.parameters[0].second[0]);
    }
    ++orders[order];
  }
  ExpectUniform(factors["AdjustBrightness"], 0.6, 1.4);
  ExpectUniform(factors["AdjustContrast"], 0.2, 1.8);
  ExpectUniform(factors["AdjustSaturation"], 0, 3);
  ExpectUniform(factors["AdjustHue"], -0.1, 0.3);
  EXPECT_LT(
      IndependenceZ(factors["AdjustBrightness"], factors["AdjustContrast"]),
      kMaxZ);
  EXPECT_LT(IndependenceZ(factors["AdjustSaturation"], factors["AdjustHue"]),
            kMaxZ);
  ASSERT_EQ(orders.size(), 24u);
  std::vector<int64_t> counts;
  for (const auto& [order, count] : orders) counts.push_back(count);
  EXPECT_LT(EquallyLikelyZ(counts), kMaxZ);
}

TEST(ExplainDistributionTest, GaussianBlursSigma) {
  GaussianBlurSpec blur;
  blur.kernel_height = 3;
  blur.kernel_width = 5;
  blur.sigma = {0.1, 2.0};
  const Feed feed(16, 16, {blur, blur});
  const std::vector<double> sigmas = feed.Collect(0, "sigma");
  ExpectUniform(sigmas, 0.1, 2.0);
  EXPECT_LT(IndependenceZ(sigmas, feed.Collect(1, "sigma")), kMaxZ);
}

TEST(ExplainDistributionTest, RandomErasingsAreaRatioAndPlace) {
  RandomErasingSpec erasing;
  erasing.p = 1.0;
  erasing.scale = {0.02, 0.2};
  const Feed feed(kSide, kSide, {erasing});
  const std::vector<double> heights = feed.Collect(0, "height");
  const std::vector<double> widths = feed.Collect(0, "width");
  std::vector<double> tops = feed.Collect(0, "top");
  std::vector<double> areas;
  std::vector<double> log_ratios;
  for (size_t i = 0; i < heights.size(); ++i) {
    areas.push_back(heights[i] * widths[i] / kSide / kSide);
    log_ratios.push_back(std::log(heights[i] / widths[i]));
    tops[i] /= kSide - heights[i];
  }
  EXPECT_LT(UniformKolmogorovSmirnov(areas, 0.02, 0.2), kMaxKolmogorovSmirnov);
  EXPECT_LT(UniformKolmogorovSmirnov(log_ratios, std::log(0.3), std::log(3.3)),
            kMaxKolmogorovSmirnov);
  ExpectUniform(tops, 0, 1);
  EXPECT_LT(IndependenceZ(areas, log_ratios), kMaxZ);
}

TEST(ExplainDistributionTest, CutoutTakesEveryPlaceEquallyOften) {
  const Feed feed(8, 11, {CutoutSpec{.size = 3}});
  const std::vector<double> tops = feed.Collect(0, "top");
  const std::vector<double> lefts = feed.Collect(0, "left");
  std::vector<int64_t> counts(6 * 9);
  for (size_t i = 0; i < tops.size(); ++i) {
    ++counts[static_cast<int64_t>(tops[i]) * 9 +
             static_cast<int64_t>(lefts[i])];
  }
  EXPECT_LT(EquallyLikelyZ(counts), kMaxZ);
}

TEST(ExplainDistributionTest, OpsOfOneDrawIdDrawAlike) {
  TransformSpec first = RandomRotationSpec{.degrees = {-30, 20}};
  TransformSpec second = first;
  first.draw_id = second.draw_id = 7;
  const Feed feed(16, 16, {first, InvertSpec{}, second});
  EXPECT_EQ(feed.Collect(0, "angle"), feed.Collect(2, "angle"));
}

}  // namespace
}  // namespace datasetd
