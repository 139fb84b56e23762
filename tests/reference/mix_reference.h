// MixUp and CutMix in double precision, and the distribution of their lambda,
// written from torchvision's formulas for tests. Shares no code with
// cuda/kernels.

#ifndef DATASETD_TESTS_REFERENCE_MIX_REFERENCE_H_
#define DATASETD_TESTS_REFERENCE_MIX_REFERENCE_H_

#include <vector>

namespace datasetd::reference {

// Planar [C, height, width], `own` of a row and `partner` of the one before.
std::vector<double> MixUp(const std::vector<double>& own,
                          const std::vector<double>& partner, double lambda);

struct CutMixBox {
  int top, left, bottom, right;
  double lambda;  // after the box is cut
};

CutMixBox CutMixBoxOf(double lambda, int center_x, int center_y, int height,
                      int width);
std::vector<double> CutMix(const std::vector<double>& own,
                           const std::vector<double>& partner, int height,
                           int width, const CutMixBox& box);

// [num_classes].
std::vector<double> MixLabels(int own, int partner, int num_classes,
                              double lambda);

// P(X <= x) for X of Beta(alpha, alpha), within 1e-6.
double BetaCdf(double alpha, double x);

}  // namespace datasetd::reference

#endif  // DATASETD_TESTS_REFERENCE_MIX_REFERENCE_H_
