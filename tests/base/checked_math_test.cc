#include "base/checked_math.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
constexpr int64_t kLow = std::numeric_limits<int64_t>::min();

TEST(CheckedMathTest, SumsAndProductsAreHeldAtTheEnds) {
  EXPECT_EQ(SaturatingAdd(2, 3), 5);
  EXPECT_EQ(SaturatingAdd(kHigh, 1), kHigh);
  EXPECT_EQ(SaturatingAdd(kLow, -1), kLow);
  EXPECT_EQ(SaturatingAdd(kHigh, kLow), -1);
  EXPECT_EQ(SaturatingSum(1, 2, 3, kHigh), kHigh);
  EXPECT_EQ(SaturatingMultiply(-4, 5), -20);
  EXPECT_EQ(SaturatingMultiply(kHigh, 2), kHigh);
  EXPECT_EQ(SaturatingMultiply(kHigh, -2), kLow);
  EXPECT_EQ(SaturatingMultiply(kLow, -1), kHigh);
  EXPECT_EQ(SaturatingProduct(int64_t{1} << 31, 1 << 30, 4), kHigh);
  EXPECT_EQ(SaturatingProduct(3, 4, 5), 60);
}

TEST(CheckedMathTest, RoundsUpToTheNextMultiple) {
  EXPECT_EQ(SaturatingRoundUp(0, 256), 0);
  EXPECT_EQ(SaturatingRoundUp(1, 256), 256);
  EXPECT_EQ(SaturatingRoundUp(256, 256), 256);
  EXPECT_EQ(SaturatingRoundUp(257, 256), 512);
  EXPECT_EQ(SaturatingRoundUp(kHigh, 256), kHigh / 256 * 256);
}

TEST(CheckedMathTest, CastsAreHeldAtTheEnds) {
  EXPECT_EQ(SaturatingCast<int32_t>(int64_t{1} << 40), INT32_MAX);
  EXPECT_EQ(SaturatingCast<int32_t>(-7.9), -7);
  EXPECT_EQ(SaturatingCast<int32_t>(2147483647.5), INT32_MAX);
  // The float is 2^31.
  EXPECT_EQ(SaturatingCast<int32_t>(2147483648.0f), INT32_MAX);
  EXPECT_EQ(SaturatingCast<int32_t>(-1e30), INT32_MIN);
  EXPECT_EQ(SaturatingCast<int64_t>(1e19), kHigh);
  EXPECT_EQ(SaturatingCast<int32_t>(std::nan("")), 0);
  EXPECT_EQ(SaturatingCast<uint32_t>(-1), 0u);
}

TEST(CheckedMathDeathTest, ANarrowedNumberMustFit) {
  EXPECT_EQ(Narrow<int32_t>(int64_t{-5}), -5);
  EXPECT_DEATH(Narrow<int32_t>(int64_t{1} << 31), "");
  EXPECT_DEATH(Narrow<uint16_t>(-1), "");
}

}  // namespace
}  // namespace datasetd
