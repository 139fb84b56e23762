// Distances of samples from a stated distribution. Seeds are fixed in tests, so
// that a bound that true samples exceed once in a million makes no test flaky.

#ifndef DATASETD_TESTS_TESTING_DISTRIBUTION_H_
#define DATASETD_TESTS_TESTING_DISTRIBUTION_H_

#include <cstdint>
#include <functional>
#include <vector>

namespace datasetd {

// Bounds of these distances. The chances to exceed them are 4e-6 and 3e-7.
inline constexpr double kMaxKolmogorovSmirnov = 2.55;
inline constexpr double kMaxZ = 5.0;

// Kolmogorov's and Smirnov's distance from a continuous distribution, times
// the square root of the number of values.
double KolmogorovSmirnov(std::vector<double> values,
                         const std::function<double(double)>& cumulative);

// The same distance from the uniform distribution between `low` and `high`.
double UniformKolmogorovSmirnov(const std::vector<double>& values, double low,
                                double high);

// Pearson's chi-square of cells that are expected to have as many each.
// REQUIRES: five expected in each cell.
double ChiSquare(const std::vector<int64_t>& counts, double expected);

// A chi-square as standard deviations of a normal.
double ChiSquareZ(double chi_square, double degrees);

// The chi-square of equally likely cells, as standard deviations of a normal.
// REQUIRES: five expected in each cell.
double EquallyLikelyZ(const std::vector<int64_t>& counts);

// Likewise for the independence of a[i] and b[i], in a table of 16 x 16 cells.
// Cells are equally likely ranges of ranks. REQUIRES: equal lengths, above
// 1,280; continuous values.
double IndependenceZ(const std::vector<double>& a,
                     const std::vector<double>& b);

}  // namespace datasetd

#endif  // DATASETD_TESTS_TESTING_DISTRIBUTION_H_
