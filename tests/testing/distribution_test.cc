#include "tests/testing/distribution.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

std::vector<double> Uniform(int size, int seed, double low, double high) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values(size);
  for (double& value : values) value = uniform(engine);
  return values;
}

TEST(DistributionTest, KolmogorovSmirnovOfKnownValues) {
  // A quarter, from the middles of two halves.
  EXPECT_DOUBLE_EQ(UniformKolmogorovSmirnov({0.25, 0.75}, 0, 1),
                   0.25 * std::sqrt(2.0));
  // All at 0.1: 0.9 above.
  EXPECT_DOUBLE_EQ(UniformKolmogorovSmirnov({0.1, 0.1, 0.1, 0.1}, 0, 1), 1.8);
}

TEST(DistributionTest, KolmogorovSmirnovSeesAShift) {
  const std::vector<double> values = Uniform(100000, 1, 2.0, 5.0);
  EXPECT_LT(UniformKolmogorovSmirnov(values, 2.0, 5.0), kMaxKolmogorovSmirnov);
  EXPECT_GT(UniformKolmogorovSmirnov(values, 2.05, 5.0), kMaxKolmogorovSmirnov);
  EXPECT_GT(UniformKolmogorovSmirnov(values, 2.0, 5.05), kMaxKolmogorovSmirnov);
}

TEST(DistributionTest, EquallyLikelyOfKnownCounts) {
  EXPECT_LT(EquallyLikelyZ({100, 100, 100, 100}), 0.0);
  EXPECT_LT(EquallyLikelyZ({90, 110, 95, 105}), kMaxZ);
  EXPECT_GT(EquallyLikelyZ({50, 150, 100, 100}), kMaxZ);
}

TEST(DistributionTest, IndependenceSeesARelation) {
  const std::vector<double> a = Uniform(100000, 2, 0.0, 1.0);
  const std::vector<double> b = Uniform(100000, 3, 0.0, 1.0);
  EXPECT_LT(std::fabs(IndependenceZ(a, b)), kMaxZ);
  EXPECT_GT(IndependenceZ(a, a), kMaxZ);
  std::vector<double> mixed = b;
  for (size_t i = 0; i < mixed.size(); ++i) mixed[i] += 0.1 * a[i];
  EXPECT_GT(IndependenceZ(a, mixed), kMaxZ);
}

}  // namespace
}  // namespace datasetd
