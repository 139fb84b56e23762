// Compares the draws of feeds, as explain reports them, with the distributions
// that the ops state: kNumSamples samples each, with fixed seeds. The bounds
// are those of tests/testing/distribution.h. Fails for an op that draws and has
// no check here.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/ops/mix.h"
#include "cuda/kernels/ops/normal.h"
#include "cuda/kernels/ops/policy.h"
#include "gtest/gtest.h"
#include "tests/server/feed/explained_feed.h"
#include "tests/testing/distribution.h"
#include "tests/testing/ops.h"

namespace datasetd {
namespace {

using ::datasetd::testing::Op;

void ExpectUniform(const std::vector<double>& values, double low, double high) {
  EXPECT_GE(*std::min_element(values.begin(), values.end()), low - 1e-6);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), high + 1e-6);
  EXPECT_LT(UniformKolmogorovSmirnov(values, low, high), kMaxKolmogorovSmirnov);
}

void CheckGate(const std::string& name) {
  for (const double p : {0.02, 0.3, 0.5, 0.97}) {
    const ExplainedFeed feed(16, 16, {Gates(p).at(name)});
    EXPECT_LT(std::fabs(AppliedZ(feed.Applied().at(0), p)), kMaxZ) << p;
  }
}

// All or nothing.
void CheckRandomApply() {
  const ExplainedFeed feed(
      16, 16,
      {Op("random_apply { transforms { invert {} } "
          "transforms { random_grayscale { p: 0.5 } } p: 0.6 }")});
  const std::map<int, std::vector<bool>> applied = feed.Applied();
  const std::vector<bool>& invert = applied.at(1);
  const std::vector<bool>& grayscale = applied.at(2);
  EXPECT_LT(std::fabs(AppliedZ(invert, 0.6)), kMaxZ);
  EXPECT_LT(std::fabs(AppliedZ(grayscale, 0.3)), kMaxZ);
  for (size_t i = 0; i < invert.size(); ++i) {
    ASSERT_TRUE(invert[i] || !grayscale[i]) << i;
  }
}

// Every second epoch, from the first or the second.
void CheckAlternatingFlip() {
  const ExplainedFeed feed(16, 16, {Op("alternating_flip {}")});
  const std::vector<bool> first = feed.Applied(1).at(0);
  EXPECT_LT(std::fabs(AppliedZ(first, 0.5)), kMaxZ);
  std::vector<bool> second = feed.Applied(2).at(0);
  second.flip();
  EXPECT_EQ(first, second);
  EXPECT_EQ(first, feed.Applied(3).at(0));
}

// Every place equally often.
void CheckRandomCrop() {
  const ExplainedFeed feed(16, 20,
                           {Op("random_crop { height: 12 width: 14 padding { "
                               "left: 1 top: 2 right: 1 bottom: 2 } }")});
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

// Area, logarithm of the ratio, and place.
void CheckRandomResizedCrop() {
  const ExplainedFeed feed(
      kSide, kSide,
      {Op("random_resized_crop { size { height: 32 width: 32 } scale { min: "
          "0.08 max: 0.4 } ratio { min: 0.75 max: $0 } }",
          4.0 / 3.0)});
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

void CheckRandomRotation() {
  // Explain's angle is clockwise, the op's the other way.
  const ExplainedFeed feed(
      16, 16, {Op("random_rotation { degrees { min: -30 max: 20 } }")});
  ExpectUniform(feed.Collect(0, "angle"), -20, 30);
}

void CheckRandomAffine() {
  const v1::Transform affine =
      Op("random_affine { degrees { min: -10 max: 50 } "
         "translate { x: 0.2 y: 0.4 } scale { min: 0.5 max: 1.75 } "
         "shear_x { min: -5 max: 10 } shear_y { min: 0 max: 3 } }");
  const ExplainedFeed feed(kSide, kSide, {affine});
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

// The factors, and the 24 orders.
void CheckColorJitter() {
  const v1::Transform jitter =
      Op("color_jitter { brightness { min: 0.6 max: 1.4 } "
         "contrast { min: 0.2 max: 1.8 } saturation { min: 0 max: 3 } "
         "hue { min: -0.1 max: 0.3 } }");
  const ExplainedFeed feed(16, 16, {jitter});
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

void CheckGaussianBlur() {
  const v1::Transform blur =
      Op("gaussian_blur { kernel_size { height: 3 width: 5 } }");
  const ExplainedFeed feed(16, 16, {blur});
  ExpectUniform(feed.Collect(0, "sigma"), 0.1, 2.0);
}

// Gate, area, logarithm of the ratio, and place.
void CheckRandomErasing() {
  v1::Transform erasing =
      Op("random_erasing { p: 1 scale { min: 0.02 max: 0.2 } }");
  const ExplainedFeed feed(kSide, kSide, {erasing});
  const std::vector<double> heights = feed.Collect(0, "height");
  const std::vector<double> widths = feed.Collect(0, "width");
  std::vector<double> tops = feed.Collect(0, "top");
  std::vector<double> lefts = feed.Collect(0, "left");
  std::vector<double> areas;
  std::vector<double> log_ratios;
  for (size_t i = 0; i < heights.size(); ++i) {
    areas.push_back(heights[i] * widths[i] / kSide / kSide);
    log_ratios.push_back(std::log(heights[i] / widths[i]));
    tops[i] /= kSide - heights[i];
    lefts[i] /= kSide - widths[i];
  }
  EXPECT_LT(UniformKolmogorovSmirnov(areas, 0.02, 0.2), kMaxKolmogorovSmirnov);
  EXPECT_LT(UniformKolmogorovSmirnov(log_ratios, std::log(0.3), std::log(3.3)),
            kMaxKolmogorovSmirnov);
  ExpectUniform(tops, 0, 1);
  ExpectUniform(lefts, 0, 1);
  EXPECT_LT(IndependenceZ(areas, log_ratios), kMaxZ);
  EXPECT_LT(IndependenceZ(areas, tops), kMaxZ);
  EXPECT_LT(IndependenceZ(tops, lefts), kMaxZ);
  erasing.mutable_random_erasing()->set_p(0.3);
  EXPECT_LT(std::fabs(AppliedZ(ExplainedFeed(16, 16, {erasing}).Applied().at(0),
                               0.3)),
            kMaxZ);
}

// Each of 14 ops, and each sign, equally often.
void CheckRandAugment() {
  const ExplainedFeed feed(kPolicySide, kPolicySide,
                           {Op("rand_augment { num_ops: 1 magnitude: 9 }")});
  std::map<double, int64_t> counts;
  for (int64_t sample = 0; sample < kNumSamples; ++sample) {
    ++counts[PolicyNumber(feed.At(1, sample))];
  }
  std::map<int, int64_t> ops;
  std::map<int, std::vector<int64_t>> signs;
  for (const auto& [number, count] : counts) {
    ops[std::abs(static_cast<int>(number))] += count;
    signs[std::abs(static_cast<int>(number))].push_back(count);
  }
  std::vector<int64_t> cells;
  for (const auto& [op, count] : ops) {
    cells.push_back(count);
    // Ops 1 to 5 move pixels, 7 to 10 have a factor.
    ASSERT_EQ(signs[op].size(), op >= 1 && op <= 10 ? 2u : 1u) << op;
    if (signs[op].size() == 2) {
      EXPECT_LT(EquallyLikelyZ(signs[op]), kMaxZ) << op;
    }
  }
  EXPECT_EQ(cells.size(), 14u);
  EXPECT_LT(EquallyLikelyZ(cells), kMaxZ);
}

// The magnitudes of a rotation: 31, each as often, and both signs.
void CheckTrivialAugmentWide() {
  const ExplainedFeed feed(kPolicySide, kPolicySide,
                           {Op("trivial_augment_wide {}")});
  std::map<int, int64_t> degrees;
  std::map<int, int64_t> ops;
  for (int64_t sample = 0; sample < kNumSamples; ++sample) {
    const std::vector<OpDraw> draws = feed.At(1, sample);
    const double number = PolicyNumber(draws);
    ++ops[std::abs(static_cast<int>(number))];
    if (std::abs(static_cast<int>(number)) == 1) {
      // In steps of 135 / 30 degrees.
      const double step = draws[0].parameters[0].second[0] / 4.5;
      EXPECT_NEAR(step, std::round(step), 1e-5);
      ++degrees[static_cast<int>(std::round(step))];
    }
  }
  std::vector<int64_t> cells;
  for (const auto& [step, count] : degrees) cells.push_back(count);
  ASSERT_EQ(cells.size(), 60u);  // without 0
  EXPECT_LT(EquallyLikelyZ(cells), kMaxZ);
  // Affine ops of magnitude 0 are all number 6: 5 of 14 ops, 1 of 31 bins, and
  // translations of 32 / 30 pixels from the first bin on.
  EXPECT_LT(std::fabs(BinomialZ(ops[6], kNumSamples, 5.0 / 14 / 31)), kMaxZ);
  for (int op = 0; op <= 14; ++op) {
    if (op == 6) continue;
    const double p = op >= 1 && op <= 5 ? 30.0 / 31 / 14 : 1.0 / 14;
    EXPECT_LT(std::fabs(BinomialZ(ops[op], kNumSamples, p)), kMaxZ) << op;
  }
}

// Each row equally often, its ops with their probabilities.
void CheckAutoAugment() {
  for (const auto policy :
       {PolicyKind::kImagenet, PolicyKind::kCifar10, PolicyKind::kSvhn}) {
    const ExplainedFeed feed(
        16, 16,
        {Op("auto_augment { policy: $0 }", static_cast<int>(policy) + 1)});
    // The probability of each pair of ops, by the names that explain uses.
    std::map<std::string, double> expected;
    const auto name = [](PolicyOp op) -> std::string {
      switch (op) {
        case PolicyOp::kBrightness:
          return "AdjustBrightness";
        case PolicyOp::kColor:
          return "AdjustSaturation";
        case PolicyOp::kContrast:
          return "AdjustContrast";
        case PolicyOp::kSharpness:
          return "AdjustSharpness";
        case PolicyOp::kPosterize:
          return "Posterize";
        case PolicyOp::kSolarize:
          return "Solarize";
        case PolicyOp::kAutoContrast:
          return "Autocontrast";
        case PolicyOp::kEqualize:
          return "Equalize";
        case PolicyOp::kInvert:
          return "Invert";
        default:
          return "Affine";
      }
    };
    for (uint32_t row = 0; row < kNumPolicyRows; ++row) {
      const PolicyChoice first = AutoAugmentChoice(policy, row, 0);
      const PolicyChoice second = AutoAugmentChoice(policy, row, 1);
      for (const bool is_first : {false, true}) {
        for (const bool is_second : {false, true}) {
          const double p = 0.1 * first.tenths;
          const double q = 0.1 * second.tenths;
          expected[(is_first ? name(first.op) : "") + "," +
                   (is_second ? name(second.op) : "")] +=
              (is_first ? p : 1 - p) * (is_second ? q : 1 - q) / kNumPolicyRows;
        }
      }
    }
    std::map<std::string, int64_t> counts;
    for (int64_t sample = 0; sample < kNumSamples; ++sample) {
      const std::vector<OpDraw> draws = feed.At(1, sample);
      ASSERT_EQ(draws.size(), 2u);
      ++counts[(draws[0].is_applied ? draws[0].name : "") + "," +
               (draws[1].is_applied ? draws[1].name : "")];
    }
    double total = 0;
    // Pairs too rare for a bound of each, together.
    double rare = 0;
    int64_t num_rare = 0;
    for (const auto& [pair, p] : expected) {
      total += p;
      if (p < 1e-9) {
        EXPECT_EQ(counts[pair], 0) << pair;
        continue;
      }
      if (p * static_cast<double>(kNumSamples) < 10) {
        rare += p;
        num_rare += counts[pair];
        continue;
      }
      EXPECT_LT(std::fabs(BinomialZ(counts[pair], kNumSamples, p)), kMaxZ)
          << pair;
    }
    if (rare > 0) {
      EXPECT_LT(std::fabs(BinomialZ(num_rare, kNumSamples, rare)), kMaxZ);
    }
    EXPECT_NEAR(total, 1.0, 1e-9);
    for (const auto& [pair, count] : counts) {
      EXPECT_TRUE(expected.contains(pair)) << pair;
    }
  }
}

// The gate, and every place of every corner.
void CheckRandomPerspective() {
  for (const double p : {0.02, 0.5, 0.97}) {
    const ExplainedFeed feed(16, 16, {Op("random_perspective { p: $0 }", p)});
    EXPECT_LT(std::fabs(AppliedZ(feed.Applied().at(0), p)), kMaxZ) << p;
  }
  const ExplainedFeed feed(
      kSide, kSide, {Op("random_perspective { distortion_scale: 0.4 p: 1 }")});
  constexpr double kReach = 0.2 * kSide;
  std::vector<std::vector<double>> drawn;
  for (int i = 0; i < 8; ++i) {
    drawn.push_back(feed.Collect(0, "endpoints", i));
    // x of the right corners, y of the lower ones.
    const bool is_far = i == 2 || i == 4 || i == 5 || i == 7;
    const double low = is_far ? kSide - 1 - kReach : 0;
    ExpectUniform(drawn.back(), low, low + kReach);
    for (int j = 0; j < i; ++j) {
      EXPECT_LT(IndependenceZ(drawn[i], drawn[j]), kMaxZ) << i << ", " << j;
    }
  }
  // Every place, both ends included.
  const ExplainedFeed small(
      6, 10, {Op("random_perspective { distortion_scale: 1 p: 1 }")});
  std::vector<int64_t> counts(6 * 4);
  const std::vector<double> x = small.Collect(0, "endpoints", 4);
  const std::vector<double> y = small.Collect(0, "endpoints", 5);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_TRUE(x[i] >= 4 && x[i] <= 9 && y[i] >= 2 && y[i] <= 5);
    ++counts[static_cast<size_t>((x[i] - 4) * 4 + y[i] - 2)];
  }
  EXPECT_LT(EquallyLikelyZ(counts), kMaxZ);
}

// Explain knows no pixels: pixel 5 of every sample.
void CheckGaussianNoise() {
  std::vector<std::vector<double>> drawn(4);
  for (int64_t sample = 0; sample < kNumSamples; ++sample) {
    float normal[kMaxChannels];
    DrawNormalPixel({20, 1, sample, 0}, 1, 2, 3, normal);
    for (int c = 0; c < kMaxChannels; ++c) drawn[c].push_back(normal[c]);
  }
  for (int c = 0; c < kMaxChannels; ++c) {
    EXPECT_LT(KolmogorovSmirnov(
                  drawn[c],
                  [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }),
              kMaxKolmogorovSmirnov);
    for (int other = 0; other < c; ++other) {
      EXPECT_LT(IndependenceZ(drawn[c], drawn[other]), kMaxZ);
    }
  }
}

void CheckPolarityInversion() {
  for (const double p : {0.02, 0.5}) {
    const ExplainedFeed feed(16, 2, {Op("polarity_inversion { p: $0 }", p)});
    EXPECT_LT(std::fabs(AppliedZ(feed.Applied().at(0), p)), kMaxZ) << p;
  }
}

void CheckGain() {
  const ExplainedFeed feed(16, 2, {Op("gain { p: 1 }")});
  const std::vector<double> decibels = feed.Collect(0, "gain_in_db");
  const std::vector<double> factors = feed.Collect(0, "gain");
  ExpectUniform(decibels, -18, 6);
  for (size_t i = 0; i < decibels.size(); ++i) {
    EXPECT_NEAR(factors[i], std::pow(10, decibels[i] / 20), 1e-6);
  }
}

// Every shift equally often, both ends included.
void CheckShift() {
  const ExplainedFeed feed(
      50, 1, {Op("shift { min_shift: -0.1 max_shift: 0.2 p: 1 }")});
  std::vector<int64_t> counts(16);
  for (const double shift : feed.Collect(0, "shift")) {
    ++counts.at(static_cast<size_t>(shift + 5));
  }
  EXPECT_LT(EquallyLikelyZ(counts), kMaxZ);
}

// The ratio, the recording and its first step, independent of each other.
void CheckAddNoise() {
  const ExplainedFeed feed(kSide, 1,
                           {Op("add_noise { snr { min: -5 max: 15 } }")});
  const std::vector<double> ratios = feed.Collect(0, "snr");
  const std::vector<double> noises = feed.Collect(0, "noise");
  const std::vector<double> starts = feed.Collect(0, "start");
  ExpectUniform(ratios, -5, 15);
  ExpectUniform(starts, 0, kSide);
  std::vector<int64_t> counts(kNumNoises);
  for (const double noise : noises) ++counts.at(static_cast<size_t>(noise));
  EXPECT_LT(EquallyLikelyZ(counts), kMaxZ);
  EXPECT_LT(std::fabs(IndependenceZ(ratios, noises)), kMaxZ);
  EXPECT_LT(std::fabs(IndependenceZ(noises, starts)), kMaxZ);
  EXPECT_LT(std::fabs(IndependenceZ(ratios, starts)), kMaxZ);
}

// Length, and begin among what remains.
void CheckMask(const v1::Transform& op) {
  const ExplainedFeed feed(kSide, kSide, {op});
  std::vector<double> lengths = feed.Collect(0, "mask_end");
  std::vector<double> begins = feed.Collect(0, "mask_start");
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i] -= begins[i];
    begins[i] /= kSide - lengths[i];
  }
  EXPECT_LT(UniformKolmogorovSmirnov(lengths, 0, 5000), kMaxKolmogorovSmirnov);
  EXPECT_LT(UniformKolmogorovSmirnov(begins, 0, 1), kMaxKolmogorovSmirnov);
  EXPECT_LT(std::fabs(IndependenceZ(lengths, begins)), kMaxZ);
}

void CheckTimeMasking() {
  CheckMask(Op("time_masking { time_mask_param: 9000 p: 0.5 }"));
}

void CheckFrequencyMasking() {
  CheckMask(Op("frequency_masking { freq_mask_param: 5000 }"));
}

// Every place equally often.
void CheckCutout() {
  const ExplainedFeed feed(8, 11, {Op("cutout { size: 3 }")});
  const std::vector<double> tops = feed.Collect(0, "top");
  const std::vector<double> lefts = feed.Collect(0, "left");
  std::vector<int64_t> counts(6 * 9);
  for (size_t i = 0; i < tops.size(); ++i) {
    ++counts[static_cast<int64_t>(tops[i]) * 9 +
             static_cast<int64_t>(lefts[i])];
  }
  EXPECT_LT(EquallyLikelyZ(counts), kMaxZ);
}

// Explain knows no batches: what the executor draws for kNumSamples of them.
std::vector<MixDraw> Mixes(const v1::Transform& op, int height, int width) {
  const ExplainedFeed feed(height, width, {op});
  std::vector<MixDraw> mixes;
  for (uint32_t i = 0; i < kNumSamples; ++i) {
    const BatchTask batch = {.num_samples = 4, .batch_index = i, .epoch = 1};
    mixes.push_back(DrawMix(feed.program().fields[0].mix, feed.program().seed,
                            batch, 0, height, width));
  }
  return mixes;
}

// Lambda is of Beta(alpha, alpha).
void CheckMixUp() {
  const std::vector<std::pair<double, double (*)(double)>> cumulatives = {
      {0.5, [](double x) { return 2 / M_PI * std::asin(std::sqrt(x)); }},
      {1.0, [](double x) { return x; }},
      {2.0, [](double x) { return x * x * (3 - 2 * x); }}};
  for (const auto& [alpha, cumulative] : cumulatives) {
    std::vector<double> lambdas;
    for (const MixDraw& mix :
         Mixes(Op("mix_up { alpha: $0 num_classes: 2 }", alpha), 8, 8)) {
      lambdas.push_back(mix.lambda);
    }
    EXPECT_LT(KolmogorovSmirnov(lambdas, cumulative), kMaxKolmogorovSmirnov)
        << alpha;
  }
}

// The box's middle and size.
void CheckCutMix() {
  constexpr int kHeight = 40;
  constexpr int kWidth = 25;
  // Lambda is 1/2: the sides are 0.3536 of the image's, and an edge of the box
  // that is not the image's tells its middle.
  std::vector<int64_t> counts(kHeight * kWidth);
  const auto middle = [](int begin, int end, int half) {
    return begin > 0 ? begin + half : end - half;
  };
  for (const MixDraw& mix :
       Mixes(Op("cut_mix { alpha: 1e12 num_classes: 2 }"), kHeight, kWidth)) {
    const int y = middle(mix.top, mix.bottom, 14);
    const int x = middle(mix.left, mix.right, 8);
    ASSERT_TRUE(y >= 0 && y < kHeight && x >= 0 && x < kWidth);
    ++counts[y * kWidth + x];
  }
  EXPECT_LT(EquallyLikelyZ(counts), kMaxZ);
  // No box about the inner half is cut, if lambda is at least 3/4.
  std::vector<double> lambdas;
  constexpr int kQuarter = kSide / 4;
  for (const MixDraw& mix :
       Mixes(Op("cut_mix { alpha: 1 num_classes: 2 }"), kSide, kSide)) {
    const int y = (mix.top + mix.bottom) / 2;
    const int x = (mix.left + mix.right) / 2;
    const bool is_inner = std::abs(y - 2 * kQuarter) < kQuarter &&
                          std::abs(x - 2 * kQuarter) < kQuarter;
    const bool is_square = mix.bottom - mix.top == mix.right - mix.left;
    if (is_inner && is_square && mix.lambda >= 0.75) {
      lambdas.push_back(mix.lambda);
    }
  }
  EXPECT_GT(lambdas.size(), kNumSamples / 20u);
  ExpectUniform(lambdas, 0.75, 1);
}

class DistributionOf : public ::testing::TestWithParam<std::string> {};

TEST_P(DistributionOf, IsAsStated) {
  static const std::map<std::string, void (*)()> kChecks = {
      {"AddNoise", CheckAddNoise},
      {"AlternatingFlip", CheckAlternatingFlip},
      {"AutoAugment", CheckAutoAugment},
      {"ColorJitter", CheckColorJitter},
      {"CutMix", CheckCutMix},
      {"Cutout", CheckCutout},
      {"FrequencyMasking", CheckFrequencyMasking},
      {"Gain", CheckGain},
      {"GaussianBlur", CheckGaussianBlur},
      {"GaussianNoise", CheckGaussianNoise},
      {"MixUp", CheckMixUp},
      {"PolarityInversion", CheckPolarityInversion},
      {"RandAugment", CheckRandAugment},
      {"RandomAffine", CheckRandomAffine},
      {"RandomApply", CheckRandomApply},
      {"RandomCrop", CheckRandomCrop},
      {"RandomErasing", CheckRandomErasing},
      {"RandomPerspective", CheckRandomPerspective},
      {"RandomResizedCrop", CheckRandomResizedCrop},
      {"RandomRotation", CheckRandomRotation},
      {"Shift", CheckShift},
      {"TimeMasking", CheckTimeMasking},
      {"TrivialAugmentWide", CheckTrivialAugmentWide}};
  const auto check = kChecks.find(GetParam());
  if (check != kChecks.end()) {
    check->second();
  } else if (Gates(0.5).count(GetParam()) == 1) {
    CheckGate(GetParam());
  } else {
    FAIL() << GetParam() << " draws, and nothing checks what";
  }
}

INSTANTIATE_TEST_SUITE_P(EveryRandomOp, DistributionOf,
                         ::testing::ValuesIn(RandomOps()),
                         [](const auto& info) { return info.param; });

TEST(ExplainDistributionTest, OpsOfOneDrawIdDrawAlike) {
  v1::Transform first = Op("random_rotation { degrees { min: -30 max: 20 } }");
  v1::Transform second = first;
  first.set_draw_id(7);
  second.set_draw_id(7);
  const ExplainedFeed feed(16, 16, {first, Op("invert {}"), second});
  EXPECT_EQ(feed.Collect(0, "angle"), feed.Collect(2, "angle"));
}

}  // namespace
}  // namespace datasetd
