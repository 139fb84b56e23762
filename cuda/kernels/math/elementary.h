// Elementary functions built from IEEE + - * / only, so that host and device
// give the same bits regardless of their math libraries.
//
// In double, because parameters are computed once per sample. Errors are
// relative unless noted, and are tested against long double.

#ifndef DATASETD_CUDA_KERNELS_MATH_ELEMENTARY_H_
#define DATASETD_CUDA_KERNELS_MATH_ELEMENTARY_H_

#include <cstdint>
#include <cstring>

#include "cuda/kernels/math/host_device.h"
#include "cuda/kernels/math/rounding.h"

namespace datasetd {

namespace elementary_internal {

// ln 2 in two parts; the upper one has 28 bits, so that its product with an
// exponent is exact.
inline constexpr double kLn2High = 0x1.62e42fep-1;
inline constexpr double kLn2Low = 0x1.f473de6af278fp-30;
inline constexpr double kLog2E = 0x1.71547652b82fep+0;
inline constexpr double kPi = 0x1.921fb54442d18p+1;

DATASETD_HOST_DEVICE inline double FromBits(uint64_t bits) {
  double x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

}  // namespace elementary_internal

// Rounds to the nearest integer, halves to even, as Python's round. REQUIRES:
// |x| < 2^51.
DATASETD_HOST_DEVICE inline double RoundHalfEven(double x) {
  // The mantissa's last bit is worth 1 around 1.5 * 2^52.
  constexpr double kShift = 6755399441055744.0;
  return (x + kShift) - kShift;
}

// The same for |x| < 2^22.
DATASETD_HOST_DEVICE inline float RoundHalfEven(float x) {
  constexpr float kShift = 12582912.0f;
  return (x + kShift) - kShift;
}

// Returns the largest integer <= x; never -0. REQUIRES: |x| < 2^31.
DATASETD_HOST_DEVICE inline float Floor(float x) {
#if defined(__CUDA_ARCH__)
  return floorf(x) + 0.0f;
#else
  const float truncated = static_cast<float>(static_cast<int32_t>(x));
  return truncated > x ? truncated - 1.0f : truncated;
#endif
}

// The same for |x| < 2^63.
DATASETD_HOST_DEVICE inline double Floor(double x) {
  const double truncated = static_cast<double>(static_cast<int64_t>(x));
  return truncated > x ? truncated - 1.0 : truncated;
}

// The correctly rounded quotient, as a call: the code of a division is long.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE double Quotient(double dividend,
                                                               double divisor) {
  return dividend / divisor;
}

// Correctly rounded square root. REQUIRES: x >= 0.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE double Sqrt(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

// e^x, within 2^-51. Returns 0 below -700; clamps x to 700.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE double Exp(double x) {
  using namespace elementary_internal;  // NOLINT: constants
  if (!(x >= -700.0)) return 0.0;
  if (x > 700.0) x = 700.0;
  const double exponent = RoundHalfEven(x * kLog2E);
  const double r = (x - exponent * kLn2High) - exponent * kLn2Low;
  // Taylor series to r^13 for |r| <= ln 2 / 2; the remainder is below 2^-57.
  double sum = 1.0 / 6227020800.0;
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  sum = 1.0 + (r + r * r * sum);
  const int64_t biased = static_cast<int64_t>(exponent) + 1023;
  return sum * FromBits(static_cast<uint64_t>(biased) << 52);
}

// The natural logarithm, within 2^-50. REQUIRES: x is positive, normal and
// finite.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE double Log(double x) {
  using namespace elementary_internal;  // NOLINT: constants
  uint64_t bits;
  memcpy(&bits, &x, sizeof(bits));
  // x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kSqrtHalf = 0x3FE6A09E667F3BCDu;
  const uint64_t above = bits - kSqrtHalf;
  const int64_t exponent = static_cast<int64_t>(above) >> 52;
  const double m = FromBits(bits - (static_cast<uint64_t>(exponent) << 52));
  // ln m = 2 atanh(s), |s| < 0.1716; the remainder is below 2^-60.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double sum = 1.0 / 23.0;
  sum = sum * z + 1.0 / 21.0;
  sum = sum * z + 1.0 / 19.0;
  sum = sum * z + 1.0 / 17.0;
  sum = sum * z + 1.0 / 15.0;
  sum = sum * z + 1.0 / 13.0;
  sum = sum * z + 1.0 / 11.0;
  sum = sum * z + 1.0 / 9.0;
  sum = sum * z + 1.0 / 7.0;
  sum = sum * z + 1.0 / 5.0;
  sum = sum * z + 1.0 / 3.0;
  const double k = static_cast<double>(exponent);
  return k * kLn2High + (k * kLn2Low + 2.0 * (s + s * z * sum));
}

// The decimal logarithm as float32, within 3 units of its last place or 1e-7.
// REQUIRES: x is positive and normal, inf or NaN.
DATASETD_HOST_DEVICE inline float Log10(float x) {
  const uint32_t bits = FloatBits(x);
  // x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)).
  constexpr uint32_t kSqrtHalf = 0x3F3504F3u;
  const int32_t exponent = static_cast<int32_t>(bits - kSqrtHalf) >> 23;
  const float m = FloatFromBits(bits - (static_cast<uint32_t>(exponent) << 23));
  // ln m = 2 atanh(s), |s| < 0.1716; the remainder is below 2^-30.
  const float s = (m - 1.0f) / (m + 1.0f);
  const float z = s * s;
  float sum = 1.0f / 9.0f;
  sum = sum * z + 1.0f / 7.0f;
  sum = sum * z + 1.0f / 5.0f;
  sum = sum * z + 1.0f / 3.0f;
  const float ln = 2.0f * (s + s * z * sum);
  // log10 2 in two parts; the product with the upper one is exact.
  const float k = static_cast<float>(exponent);
  const float log =
      k * 0x1.344p-2f + (k * 0x1.3509f8p-18f + ln * 0x1.bcb7b2p-2f);
  return x < FloatFromBits(0x7F800000) ? log : x;
}

struct SinCos {
  double sin, cos;
};

// sin(pi x) and cos(pi x), within 2^-50; exact at multiples of 1/2.
// REQUIRES: |x| < 2^50.
DATASETD_HOST_DEVICE DATASETD_CALLED_ON_DEVICE SinCos SinCosPi(double x) {
  const double halves = RoundHalfEven(2.0 * x);
  // t is in [-pi/4, pi/4]; the subtraction is exact.
  const double t = elementary_internal::kPi * (x - 0.5 * halves);
  const double z = t * t;
  double sin_sum = -1.0 / 1307674368000.0;
  sin_sum = sin_sum * z + 1.0 / 6227020800.0;
  sin_sum = sin_sum * z - 1.0 / 39916800.0;
  sin_sum = sin_sum * z + 1.0 / 362880.0;
  sin_sum = sin_sum * z - 1.0 / 5040.0;
  sin_sum = sin_sum * z + 1.0 / 120.0;
  sin_sum = sin_sum * z - 1.0 / 6.0;
  const double sin_t = t + t * z * sin_sum;
  double cos_sum = 1.0 / 20922789888000.0;
  cos_sum = cos_sum * z - 1.0 / 87178291200.0;
  cos_sum = cos_sum * z + 1.0 / 479001600.0;
  cos_sum = cos_sum * z - 1.0 / 3628800.0;
  cos_sum = cos_sum * z + 1.0 / 40320.0;
  cos_sum = cos_sum * z - 1.0 / 720.0;
  cos_sum = cos_sum * z + 1.0 / 24.0;
  cos_sum = cos_sum * z - 0.5;
  const double cos_t = 1.0 + z * cos_sum;
  switch (static_cast<int64_t>(halves) & 3) {
    case 0:
      return {sin_t, cos_t};
    case 1:
      return {cos_t, -sin_t};
    case 2:
      return {-sin_t, -cos_t};
    default:
      return {-cos_t, sin_t};
  }
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MATH_ELEMENTARY_H_
