#include "cuda/kernels/math/elementary.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

constexpr int kNumPoints = 1000000;

// The relative error of `got`, in units of 2^-53.
double Error(double got, long double want) {
  return static_cast<double>(std::fabs((got - want) / want * 0x1p53L));
}

TEST(ElementaryTest, ExpIsWithinItsError) {
  std::mt19937_64 engine(1);
  double worst = 0;
  for (const double range : {1e-6, 0.3, 3.0, 50.0, 700.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < kNumPoints / 5; ++i) {
      const double x = uniform(engine);
      worst =
          std::max(worst, Error(Exp(x), std::exp(static_cast<long double>(x))));
    }
  }
  EXPECT_LE(worst, 4.0);
}

TEST(ElementaryTest, ExpAtItsEnds) {
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(-701.0), 0.0);
  EXPECT_EQ(Exp(-INFINITY), 0.0);
  EXPECT_EQ(Exp(NAN), 0.0);
  EXPECT_EQ(Exp(INFINITY), Exp(700.0));
  EXPECT_LE(Error(Exp(700.0), std::exp(700.0L)), 4.0);
  EXPECT_LE(Error(Exp(-700.0), std::exp(-700.0L)), 4.0);
}

TEST(ElementaryTest, LogIsWithinItsError) {
  std::mt19937_64 engine(2);
  double worst = 0;
  for (const double range : {1e-9, 1e-3, 0.1, 1.0, 300.0}) {
    // Ratios about 1, as far as 10^+-300.
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < kNumPoints / 5; ++i) {
      const double x = std::pow(10.0, uniform(engine));
      if (x == 1.0) continue;
      worst =
          std::max(worst, Error(Log(x), std::log(static_cast<long double>(x))));
    }
  }
  EXPECT_LE(worst, 8.0);
}

TEST(ElementaryTest, LogAtItsEnds) {
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_LE(Error(Log(0x1p-1022), std::log(0x1p-1022L)), 8.0);
  EXPECT_LE(
      Error(Log(0x1.fffffffffffffp1023), std::log(0x1.fffffffffffffp1023L)),
      8.0);
  EXPECT_LE(Error(Log(std::sqrt(0.5)),
                  std::log(static_cast<long double>(std::sqrt(0.5)))),
            8.0);
}

TEST(ElementaryTest, SinAndCosAreWithinTheirError) {
  std::mt19937_64 engine(3);
  const long double pi = std::acos(-1.0L);
  double worst_sin = 0;
  double worst_cos = 0;
  for (const double range : {1e-9, 0.25, 2.0, 1000.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < kNumPoints / 4; ++i) {
      const double x = uniform(engine);
      const auto [s, c] = SinCosPi(x);
      // sin and cos of pi x by the nearest half, where they are small.
      const long double halves = std::round(2.0L * x);
      const long double t = pi * (x - halves / 2);
      const int quadrant = static_cast<int>(static_cast<long long>(halves) & 3);
      const long double base[2] = {std::sin(t), std::cos(t)};
      const long double want_sin = (quadrant & 2 ? -1 : 1) * base[quadrant & 1];
      const long double want_cos =
          (quadrant == 1 || quadrant == 2 ? -1 : 1) * base[1 - (quadrant & 1)];
      if (want_sin != 0) worst_sin = std::max(worst_sin, Error(s, want_sin));
      if (want_cos != 0) worst_cos = std::max(worst_cos, Error(c, want_cos));
      if (range <= 2.0) {
        // Against the functions themselves, without the reduction.
        ASSERT_NEAR(s, static_cast<double>(std::sin(pi * x)), 1e-15) << x;
        ASSERT_NEAR(c, static_cast<double>(std::cos(pi * x)), 1e-15) << x;
      }
    }
  }
  EXPECT_LE(worst_sin, 8.0);
  EXPECT_LE(worst_cos, 8.0);
}

TEST(ElementaryTest, QuartersOfATurnAreExact) {
  const double sines[] = {0, 1, 0, -1};
  for (int quarter = -9; quarter <= 9; ++quarter) {
    const auto [s, c] = SinCosPi(quarter / 2.0);
    EXPECT_EQ(s, sines[quarter & 3]) << quarter;
    EXPECT_EQ(c, sines[(quarter + 1) & 3]) << quarter;
  }
}

TEST(ElementaryTest, RoundsHalvesToEven) {
  std::mt19937_64 engine(4);
  std::uniform_real_distribution<double> uniform(-1e6, 1e6);
  for (int i = 0; i < 100000; ++i) {
    const double x = uniform(engine);
    const float narrow = static_cast<float>(x);
    ASSERT_EQ(RoundHalfEven(x), std::nearbyint(x));
    ASSERT_EQ(RoundHalfEven(narrow), std::nearbyint(narrow));
    ASSERT_EQ(Floor(x), std::floor(x));
    ASSERT_EQ(Floor(narrow), std::floor(narrow));
  }
  for (int i = -9; i <= 9; ++i) {
    EXPECT_EQ(RoundHalfEven(i / 2.0), std::nearbyint(i / 2.0)) << i;
    EXPECT_EQ(RoundHalfEven(i / 2.0f), std::nearbyint(i / 2.0f)) << i;
    EXPECT_EQ(Floor(i / 2.0), std::floor(i / 2.0)) << i;
    EXPECT_EQ(Floor(i / 2.0f), std::floor(i / 2.0f)) << i;
  }
}

}  // namespace
}  // namespace datasetd
