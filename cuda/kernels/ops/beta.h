// Draws Beta(alpha, alpha) in (0, 1] as X / (X + Y) of two gamma variates.
//
// Gamma variates follow Marsaglia and Tsang ("A Simple Method for Generating
// Gamma Variables", 2000). A try uses one draw and is accepted with probability
// above 0.95. All kNumGammaTries fail with probability below 2^-138; the result
// is then that of the normal variate 0. For alpha < 1, alpha is raised by 1 and
// the variate multiplied by U^(1 / alpha). Everything is computed in
// logarithms, so arbitrarily small alphas work.

#ifndef DATASETD_CUDA_KERNELS_OPS_BETA_H_
#define DATASETD_CUDA_KERNELS_OPS_BETA_H_

#include <cstdint>

#include "cuda/kernels/math/elementary.h"
#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/random.h"
#include "cuda/kernels/ops/draw_key.h"

namespace datasetd {

inline constexpr uint32_t kNumGammaTries = 32;
inline constexpr uint32_t kNumBetaDraws = 1 + 2 * kNumGammaTries;

namespace beta_internal {

// Returns a number in (0, 1) with 52 random bits.
DATASETD_HOST_DEVICE inline double OpenUniform(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 12;
  return (static_cast<double>(bits) + 0.5) * (1.0 / 4503599627370496.0);
}

// Returns ln(G / (alpha - 1/3)) for G ~ Gamma(alpha). REQUIRES: alpha >= 1.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE double LogGamma(
    const DrawKey& key, uint32_t draw, double alpha) {
  const double d = alpha - 1.0 / 3.0;
  const double c = Quotient(1.0, Sqrt(9.0 * d));
  DATASETD_NO_UNROLL
  for (uint32_t i = 0; i < kNumGammaTries; ++i) {
    const Words4 words = DrawWords(key, draw + i);
    const double cosine =
        SinCosPi(static_cast<double>(words.word[1]) * (1.0 / 2147483648.0)).cos;
    const double normal =
        cosine * Sqrt(-2.0 * Log(OpenUniform(words.word[0], words.word[3])));
    const double root = 1.0 + c * normal;
    if (!(root > 0.0)) continue;
    const double v = root * root * root;
    const double log_v = Log(v);
    const double log_u = Log(OpenUniform(words.word[2], 0));
    if (log_u < 0.5 * normal * normal + d * ((1.0 - v) + log_v)) return log_v;
  }
  return 0.0;
}

}  // namespace beta_internal

// Uses draws first_draw .. first_draw + kNumBetaDraws of `key`. REQUIRES: alpha
// is positive and finite.
DATASETD_HOST_DEVICE inline double DrawBeta(const DrawKey& key,
                                            uint32_t first_draw, double alpha) {
  using namespace beta_internal;  // NOLINT: local to this function
  const double raised = alpha < 1.0 ? alpha + 1.0 : alpha;
  // ln(Y / X).
  double log_ratio = LogGamma(key, first_draw + 1 + kNumGammaTries, raised) -
                     LogGamma(key, first_draw + 1, raised);
  if (alpha < 1.0) {
    const Words4 words = DrawWords(key, first_draw);
    log_ratio += Quotient(Log(OpenUniform(words.word[2], words.word[3])) -
                              Log(OpenUniform(words.word[0], words.word[1])),
                          alpha);
  }
  return Quotient(1.0, 1.0 + Exp(log_ratio));
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_OPS_BETA_H_
