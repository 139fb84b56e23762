#include "cuda/kernels/math/rounding.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/reference/rounding_reference.h"

namespace datasetd {
namespace {

// All that lies between or on representable values of float16 and bfloat16:
// each of them, its neighbours in float32, and the middle to the next.
std::vector<float> InterestingFloats() {
  std::vector<float> floats;
  for (const reference::FloatFormat format :
       {reference::kFloat16, reference::kBfloat16}) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const double value = reference::Decode(bits, format);
      const double next = reference::Decode((bits + 1) % 65536, format);
      for (const double x : {value, value / 2 + next / 2}) {
        const float center = static_cast<float>(x);
        floats.push_back(center);
        floats.push_back(std::nextafter(center, INFINITY));
        floats.push_back(std::nextafter(center, -INFINITY));
      }
    }
  }
  std::mt19937 engine(1);
  for (int i = 0; i < 200000; ++i) {
    floats.push_back(FloatFromBits(static_cast<uint32_t>(engine())));
  }
  return floats;
}

TEST(RoundingTest, Float16AndBfloat16OfFloats) {
  for (const float x : InterestingFloats()) {
    ASSERT_EQ(FloatToFloat16(x), reference::Round(x, reference::kFloat16))
        << std::hexfloat << x;
    ASSERT_EQ(FloatToBfloat16(x), reference::Round(x, reference::kBfloat16))
        << std::hexfloat << x;
  }
}

TEST(RoundingTest, Float16IsTheCompilers) {
  for (const float x : InterestingFloats()) {
    if (x != x) continue;
    const _Float16 half = static_cast<_Float16>(x);
    uint16_t bits;
    memcpy(&bits, &half, sizeof(bits));
    ASSERT_EQ(FloatToFloat16(x), bits) << std::hexfloat << x;
  }
}

TEST(RoundingTest, Float16ToFloatIsExact) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = reference::Decode(bits, reference::kFloat16);
    const float value = Float16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_EQ(FloatBits(value), kNanFloat32);
    } else {
      ASSERT_EQ(static_cast<double>(value), expected);
      ASSERT_EQ(std::signbit(value), std::signbit(expected));
    }
  }
}

TEST(RoundingTest, Uint8RoundsToEvenAndClamps) {
  EXPECT_EQ(FloatToUint8(-1.0f), 0);
  EXPECT_EQ(FloatToUint8(-0.0f), 0);
  EXPECT_EQ(FloatToUint8(0.5f), 0);
  EXPECT_EQ(FloatToUint8(1.5f), 2);
  EXPECT_EQ(FloatToUint8(2.5f), 2);
  EXPECT_EQ(FloatToUint8(254.5f), 254);
  EXPECT_EQ(FloatToUint8(254.51f), 255);
  EXPECT_EQ(FloatToUint8(1e30f), 255);
  EXPECT_EQ(FloatToUint8(INFINITY), 255);
  EXPECT_EQ(FloatToUint8(-INFINITY), 0);
  EXPECT_EQ(FloatToUint8(NAN), 0);
  std::mt19937 engine(1);
  for (int i = 0; i < 100000; ++i) {
    const float x = static_cast<float>(engine() % 600000) / 2048.0f - 10.0f;
    ASSERT_EQ(FloatToUint8(x), reference::RoundToUint8(x)) << x;
  }
}

// Values just beside the middle of two bfloat16, where rounding twice differs.
TEST(RoundingTest, DoublesAndIntegersAreRoundedOnce) {
  const double middle = 1.0 + 1.0 / 256;
  for (const double x :
       {middle, middle + 1e-12, middle - 1e-12, -middle - 1e-12, 65519.9999999,
        65520.0, 1e-8, 2.98023224e-8, 2.98023224e-8 + 1e-20, 1e-310, 1e300,
        3.3961e38, -1e39, 0.1, -0.0}) {
    const float odd = DoubleToFloatForRounding(x);
    EXPECT_EQ(FloatToBfloat16(odd), reference::Round(x, reference::kBfloat16))
        << x;
    EXPECT_EQ(FloatToFloat16(odd), reference::Round(x, reference::kFloat16))
        << x;
  }
  EXPECT_NE(FloatToBfloat16(static_cast<float>(middle + 1e-12)),
            FloatToBfloat16(DoubleToFloatForRounding(middle + 1e-12)));
  std::mt19937_64 engine(1);
  for (int i = 0; i < 200000; ++i) {
    // Few leading bits, then a lone one far below: near middles, of all sizes.
    const int shift = static_cast<int>(engine() % 54);
    int64_t x = static_cast<int64_t>(engine() % 512) << shift;
    x += static_cast<int64_t>(engine() % 3) - 1;
    if (engine() % 2 == 0) x = -x;
    const float odd = Int64ToFloatForRounding(x);
    ASSERT_EQ(FloatToBfloat16(odd), reference::Round(x, reference::kBfloat16))
        << x;
    ASSERT_EQ(FloatToFloat16(odd), reference::Round(x, reference::kFloat16))
        << x;
    const double real = static_cast<double>(engine() % 512) +
                        std::ldexp(static_cast<double>(engine() % 3) - 1, -40);
    const double scaled =
        std::ldexp(real, static_cast<int>(engine() % 60) - 30);
    const float odd_real = DoubleToFloatForRounding(scaled);
    ASSERT_EQ(FloatToBfloat16(odd_real),
              reference::Round(scaled, reference::kBfloat16))
        << scaled;
    ASSERT_EQ(FloatToFloat16(odd_real),
              reference::Round(scaled, reference::kFloat16))
        << scaled;
  }
  for (const int64_t x : {std::numeric_limits<int64_t>::min(),
                          std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(FloatToBfloat16(Int64ToFloatForRounding(x)),
              reference::Round(x, reference::kBfloat16));
  }
}

}  // namespace
}  // namespace datasetd
