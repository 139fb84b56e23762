#include "cuda/kernels/ops/policy.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda/kernels/ops/op_table.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

PolicyParams Params(PolicyKind kind, int num_bins, int magnitude = 0) {
  PolicyParams params = {};
  params.kind = kind;
  params.num_bins = num_bins;
  params.magnitude = magnitude;
  params.bound = 255.0f;
  return params;
}

float Magnitude(const PolicyParams& params, PolicyOp op, int bin, int height,
                int width) {
  return SignedMagnitude(params, {op, true, false, bin}, height, width);
}

TEST(PolicyTest, MagnitudesGoFromNoneToTheLargest) {
  const PolicyParams narrow = Params(PolicyKind::kRandAugment, 31);
  EXPECT_EQ(Magnitude(narrow, PolicyOp::kShearX, 0, 8, 8), 0.0f);
  EXPECT_EQ(Magnitude(narrow, PolicyOp::kShearY, 30, 8, 8), 0.3f);
  EXPECT_EQ(Magnitude(narrow, PolicyOp::kTranslateX, 30, 8, 331), 150.0f);
  EXPECT_EQ(Magnitude(narrow, PolicyOp::kTranslateY, 30, 662, 8), 300.0f);
  EXPECT_EQ(Magnitude(narrow, PolicyOp::kRotate, 9, 8, 8), 9.0f);
  EXPECT_EQ(Magnitude(narrow, PolicyOp::kColor, 30, 8, 8), 0.9f);
  const PolicyParams wide = Params(PolicyKind::kTrivialAugmentWide, 31);
  EXPECT_EQ(Magnitude(wide, PolicyOp::kShearX, 30, 8, 8), 0.99f);
  EXPECT_EQ(Magnitude(wide, PolicyOp::kTranslateX, 30, 8, 331), 32.0f);
  EXPECT_EQ(Magnitude(wide, PolicyOp::kRotate, 30, 8, 8), 135.0f);
  EXPECT_EQ(Magnitude(wide, PolicyOp::kSharpness, 30, 8, 8), 0.99f);
  EXPECT_EQ(SignedMagnitude(wide, {PolicyOp::kRotate, true, true, 30}, 8, 8),
            -135.0f);
}

TEST(PolicyTest, ValuesAreSpacedEvenly) {
  for (const int num_bins : {2, 3, 10, 31, 65536}) {
    for (int bin = 0; bin < num_bins; ++bin) {
      ASSERT_NEAR(SpacedValue(0.0f, 0.9f, bin, num_bins),
                  0.9 * bin / (num_bins - 1), 1e-7);
    }
    EXPECT_EQ(SpacedValue(1.0f, 0.0f, num_bins - 1, num_bins), 0.0f);
  }
}

TEST(PolicyTest, BitsAreRoundedHalfToEven) {
  const auto bits = [](PolicyKind kind, int num_bins) {
    std::vector<int> all;
    for (int bin = 0; bin < num_bins; ++bin) {
      all.push_back(PolicyBits(Params(kind, num_bins),
                               {PolicyOp::kPosterize, true, false, bin}));
    }
    return all;
  };
  EXPECT_EQ(bits(PolicyKind::kImagenet, 10),
            (std::vector<int>{8, 8, 7, 7, 6, 6, 5, 5, 4, 4}));
  EXPECT_EQ(bits(PolicyKind::kRandAugment, 9),
            (std::vector<int>{8, 8, 7, 6, 6, 6, 5, 4, 4}));
  EXPECT_EQ(bits(PolicyKind::kTrivialAugmentWide, 7),
            (std::vector<int>{8, 7, 6, 5, 4, 3, 2}));
}

TEST(PolicyTest, ThresholdsArePartsOfTheBound) {
  PolicyParams params = Params(PolicyKind::kRandAugment, 31);
  const auto threshold = [&](int bin) {
    return PolicyThreshold(params, {PolicyOp::kSolarize, true, false, bin});
  };
  EXPECT_EQ(threshold(0), 255.0f);
  EXPECT_EQ(threshold(15), 127.5f);
  EXPECT_EQ(threshold(30), 0.0f);
  params.bound = 1.0f;
  EXPECT_EQ(threshold(15), 0.5f);
}

TEST(PolicyTest, RowsAreOfProbabilitiesAndBins) {
  for (const auto policy :
       {PolicyKind::kImagenet, PolicyKind::kCifar10, PolicyKind::kSvhn}) {
    for (uint32_t row = 0; row < kNumPolicyRows; ++row) {
      for (int turn = 0; turn < kPolicyRowOps; ++turn) {
        const PolicyChoice choice = AutoAugmentChoice(policy, row, turn);
        EXPECT_NE(choice.op, PolicyOp::kIdentity);
        EXPECT_LE(choice.tenths, 10);
        EXPECT_LT(choice.bin, kNumAutoAugmentBins);
      }
    }
  }
}

// The matrix of a drawn warp, from the angles that DrawAffine takes.
TEST(PolicyTest, WarpsAreThoseOfAffine) {
  constexpr int kHeight = 31;
  constexpr int kWidth = 44;
  constexpr double kDegrees = 180.0 / 3.14159265358979323846;
  for (const bool is_negative : {false, true}) {
    for (const auto op :
         {PolicyOp::kShearX, PolicyOp::kShearY, PolicyOp::kTranslateX,
          PolicyOp::kTranslateY, PolicyOp::kRotate}) {
      const PolicyParams params = Params(PolicyKind::kRandAugment, 31);
      const PolicyDraw policy = {op, true, is_negative, 17};
      const float magnitude = SignedMagnitude(params, policy, kHeight, kWidth);
      AffineParams affine = {};
      affine.scale[0] = affine.scale[1] = 1.0f;
      const auto shear = static_cast<float>(kDegrees * std::atan(magnitude));
      const bool is_shear = op == PolicyOp::kShearX || op == PolicyOp::kShearY;
      if (is_shear) {
        affine.center[0] = -0.5f * kWidth;
        affine.center[1] = -0.5f * kHeight;
      }
      if (op == PolicyOp::kShearX) {
        affine.shear_x[0] = affine.shear_x[1] = shear;
      } else if (op == PolicyOp::kShearY) {
        affine.shear_y[0] = affine.shear_y[1] = shear;
      } else if (op == PolicyOp::kRotate) {
        affine.angle[0] = affine.angle[1] = -magnitude;
      } else {
        affine.translate[op == PolicyOp::kTranslateX ? 0 : 1] =
            std::trunc(magnitude);
      }
      const AffineDraw expected =
          DrawAffine(affine, {1, 2, 3, 4}, kHeight, kWidth);
      const AffineDraw found = DrawPolicyWarp(params, policy, kHeight, kWidth);
      for (int i = 0; i < 2; ++i) {
        for (int k = 0; k < 3; ++k) {
          EXPECT_NEAR(found.matrix[i][k], expected.matrix[i][k], 3e-5)
              << static_cast<int>(op) << ", " << i << ", " << k;
        }
        EXPECT_EQ(found.translate[i], expected.translate[i]);
      }
      EXPECT_EQ(found.angle, expected.angle);
    }
  }
}

TEST(PolicyTest, TurnsOfOneSampleDrawByThemselves) {
  PolicyParams params = Params(PolicyKind::kRandAugment, 31, 9);
  int num_same = 0;
  for (int64_t sample = 0; sample < 10000; ++sample) {
    params.turn = 0;
    const PolicyDraw first = DrawPolicy(params, {1, 2, sample, 3});
    params.turn = 1;
    num_same += DrawPolicy(params, {1, 2, sample, 3}).op == first.op;
    EXPECT_EQ(first.bin, 9);
  }
  EXPECT_NEAR(num_same, 10000.0 / kNumDrawnPolicyOps, 5 * 26);
}

}  // namespace
}  // namespace datasetd
