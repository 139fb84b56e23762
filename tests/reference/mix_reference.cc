#include "tests/reference/mix_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace datasetd::reference {

std::vector<double> MixUp(const std::vector<double>& own,
                          const std::vector<double>& partner, double lambda) {
  std::vector<double> mixed(own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    mixed[i] = lambda * own[i] + (1.0 - lambda) * partner[i];
  }
  return mixed;
}

CutMixBox CutMixBoxOf(double lambda, int center_x, int center_y, int height,
                      int width) {
  const double r = 0.5 * std::sqrt(1.0 - lambda);
  const int half_width = static_cast<int>(r * width);
  const int half_height = static_cast<int>(r * height);
  CutMixBox box;
  box.left = std::max(center_x - half_width, 0);
  box.top = std::max(center_y - half_height, 0);
  box.right = std::min(center_x + half_width, width);
  box.bottom = std::min(center_y + half_height, height);
  const double area = 1.0 * (box.right - box.left) * (box.bottom - box.top);
  box.lambda = 1.0 - area / (1.0 * width * height);
  return box;
}

std::vector<double> CutMix(const std::vector<double>& own,
                           const std::vector<double>& partner, int height,
                           int width, const CutMixBox& box) {
  std::vector<double> mixed = own;
  const size_t plane = static_cast<size_t>(height) * width;
  for (size_t start = 0; start < own.size(); start += plane) {
    for (int y = box.top; y < box.bottom; ++y) {
      for (int x = box.left; x < box.right; ++x) {
        const size_t at = start + static_cast<size_t>(y) * width + x;
        mixed[at] = partner[at];
      }
    }
  }
  return mixed;
}

std::vector<double> MixLabels(int own, int partner, int num_classes,
                              double lambda) {
  std::vector<double> label(num_classes, 0.0);
  label[own] += lambda;
  label[partner] += 1.0 - lambda;
  return label;
}

namespace {

// The integral of t^(alpha - 1) (1 - t)^(alpha - 1) from 0 to x <= 1/2, by
// Simpson's rule. Below 1, alpha makes a singularity at 0, which t = s^(1 /
// alpha) takes away.
double LowerHalf(double alpha, double x) {
  constexpr int kIntervals = 1000;
  const double top = alpha < 1.0 ? std::pow(x, alpha) : x;
  const auto value = [&](double s) {
    if (alpha >= 1.0) return std::pow(4.0 * s * (1.0 - s), alpha - 1.0);
    return std::pow(1.0 - std::pow(s, 1.0 / alpha), alpha - 1.0);
  };
  const double h = top / kIntervals;
  double sum = value(0.0) + value(top);
  for (int i = 1; i < kIntervals; ++i) {
    sum += (i % 2 == 1 ? 4.0 : 2.0) * value(i * h);
  }
  return sum * h / 3.0;
}

}  // namespace

double BetaCdf(double alpha, double x) {
  if (x <= 0.0) return 0.0;
  if (x >= 1.0) return 1.0;
  if (x > 0.5) return 1.0 - BetaCdf(alpha, 1.0 - x);
  return 0.5 * LowerHalf(alpha, x) / LowerHalf(alpha, 0.5);
}

}  // namespace datasetd::reference
