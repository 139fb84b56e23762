#include "tests/testing/distribution.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <numeric>

namespace datasetd {

// Wilson and Hilferty: the cube root of a chi-square variable is nearly normal.
// At 1 degree of freedom its 5 sigma stand for 3e-8, so it only rejects less
// there.
double ChiSquareZ(double chi_square, double degrees) {
  const double variance = 2.0 / (9.0 * degrees);
  return (std::cbrt(chi_square / degrees) - (1.0 - variance)) /
         std::sqrt(variance);
}

double ChiSquare(const std::vector<int64_t>& counts, double expected) {
  if (expected < 5.0) std::abort();
  double sum = 0;
  for (int64_t count : counts) {
    sum += (count - expected) * (count - expected) / expected;
  }
  return sum;
}

namespace {

// The rank of each value, from 0.
std::vector<int64_t> Ranks(const std::vector<double>& values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t i, int64_t j) { return values[i] < values[j]; });
  std::vector<int64_t> ranks(values.size());
  for (size_t i = 0; i < order.size(); ++i) ranks[order[i]] = i;
  return ranks;
}

}  // namespace

double KolmogorovSmirnov(std::vector<double> values,
                         const std::function<double(double)>& cumulative) {
  std::sort(values.begin(), values.end());
  const double size = static_cast<double>(values.size());
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double expected = cumulative(values[i]);
    distance =
        std::max({distance, expected - i / size, (i + 1) / size - expected});
  }
  return distance * std::sqrt(size);
}

double UniformKolmogorovSmirnov(const std::vector<double>& values, double low,
                                double high) {
  return KolmogorovSmirnov(values, [&](double x) {
    return std::min(std::max((x - low) / (high - low), 0.0), 1.0);
  });
}

double EquallyLikelyZ(const std::vector<int64_t>& counts) {
  const double total = static_cast<double>(
      std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  return ChiSquareZ(ChiSquare(counts, total / counts.size()),
                    counts.size() - 1.0);
}

double IndependenceZ(const std::vector<double>& a,
                     const std::vector<double>& b) {
  constexpr int64_t kCells = 16;
  const int64_t size = static_cast<int64_t>(a.size());
  if (b.size() != a.size()) std::abort();
  const std::vector<int64_t> rank_a = Ranks(a);
  const std::vector<int64_t> rank_b = Ranks(b);
  std::vector<int64_t> counts(kCells * kCells);
  for (int64_t i = 0; i < size; ++i) {
    ++counts[rank_a[i] * kCells / size * kCells + rank_b[i] * kCells / size];
  }
  const double expected = static_cast<double>(size) / (kCells * kCells);
  return ChiSquareZ(ChiSquare(counts, expected),
                    (kCells - 1.0) * (kCells - 1.0));
}

}  // namespace datasetd
