#include "cuda/kernels/ops/color_jitter.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/distribution.h"
#include "tests/testing/long_form.h"

namespace datasetd {
namespace {

const int kNumDraws = testing::IsFull() ? 100000 : 20000;
const ColorJitterParams kParams = {{true, true, true, true},
                                   {0.6f, 0.2f, 0.0f, -0.1f},
                                   {1.4f, 1.8f, 3.0f, 0.3f},
                                   255.0f};

ColorJitterDraw At(uint64_t epoch, int64_t sample, uint32_t op_index) {
  return DrawColorJitter(kParams, {31, epoch, sample, op_index}, 4, 4);
}

std::vector<double> Factors(int op, uint64_t epoch, int64_t first_sample,
                            uint32_t op_index) {
  std::vector<double> factors;
  for (int64_t i = 0; i < kNumDraws; ++i) {
    factors.push_back(At(epoch, first_sample + i, op_index).factor[op]);
  }
  return factors;
}

TEST(ColorJitterTest, FactorsAreUniformAndIndependentOfEachOther) {
  std::vector<double> factors[kNumJitterOps];
  for (int op = 0; op < kNumJitterOps; ++op) {
    factors[op] = Factors(op, 1, 0, 2);
    EXPECT_LT(UniformKolmogorovSmirnov(factors[op], kParams.low[op],
                                       kParams.high[op]),
              kMaxKolmogorovSmirnov)
        << op;
    EXPECT_GE(*std::min_element(factors[op].begin(), factors[op].end()),
              kParams.low[op]);
    EXPECT_LE(*std::max_element(factors[op].begin(), factors[op].end()),
              kParams.high[op]);
    for (int other = 0; other < op; ++other) {
      EXPECT_LT(IndependenceZ(factors[op], factors[other]), kMaxZ);
    }
  }
}

TEST(ColorJitterTest, SamplesEpochsAndOpsAreIndependent) {
  const std::vector<double> factors = Factors(0, 1, 0, 2);
  EXPECT_LT(IndependenceZ(factors, Factors(0, 1, 1, 2)), kMaxZ);
  EXPECT_LT(IndependenceZ(factors, Factors(0, 2, 0, 2)), kMaxZ);
  EXPECT_LT(IndependenceZ(factors, Factors(0, 1, 0, 3)), kMaxZ);
}

TEST(ColorJitterTest, EveryOrderIsEquallyLikely) {
  std::map<std::vector<JitterOp>, int64_t> counts;
  for (int64_t sample = 0; sample < kNumDraws; ++sample) {
    const ColorJitterDraw draw = At(0, sample, 1);
    ASSERT_EQ(draw.num_ops, 4);
    ++counts[std::vector<JitterOp>(draw.order, draw.order + 4)];
  }
  ASSERT_EQ(counts.size(), 24u);
  std::vector<int64_t> cells;
  for (const auto& [order, count] : counts) {
    std::vector<JitterOp> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(sorted,
              (std::vector<JitterOp>{JitterOp::kBrightness, JitterOp::kContrast,
                                     JitterOp::kSaturation, JitterOp::kHue}));
    cells.push_back(count);
  }
  EXPECT_LT(EquallyLikelyZ(cells), kMaxZ);
}

TEST(ColorJitterTest, AnOpLeftOutLeavesTheOthersOrder) {
  ColorJitterParams params = kParams;
  params.is_present[1] = false;
  params.is_present[3] = false;
  int64_t num_brightness_first = 0;
  for (int64_t sample = 0; sample < kNumDraws; ++sample) {
    const ColorJitterDraw draw =
        DrawColorJitter(params, {31, 0, sample, 1}, 4, 4);
    ASSERT_EQ(draw.num_ops, 2);
    std::vector<JitterOp> left;
    for (const JitterOp op : At(0, sample, 1).order) {
      if (params.is_present[static_cast<int>(op)]) left.push_back(op);
    }
    ASSERT_EQ(std::vector<JitterOp>(draw.order, draw.order + 2), left);
    num_brightness_first += left[0] == JitterOp::kBrightness;
  }
  EXPECT_LT(
      EquallyLikelyZ({num_brightness_first, kNumDraws - num_brightness_first}),
      kMaxZ);
}

}  // namespace
}  // namespace datasetd
