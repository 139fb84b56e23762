#include "tests/reference/rounding_reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace datasetd::reference {
namespace {

int Bias(FloatFormat format) { return (1 << (format.exponent_bits - 1)) - 1; }

uint32_t InfinityBits(FloatFormat format) {
  return ((1u << format.exponent_bits) - 1) << format.mantissa_bits;
}

// x >= 0 to an integer, ties to even, without the processor's rounding mode.
long double NearestEven(long double x) {
  const long double below = std::floor(x);
  const long double rest = x - below;
  if (rest > 0.5L) return below + 1;
  if (rest < 0.5L) return below;
  return std::fmod(below, 2.0L) == 0 ? below : below + 1;
}

}  // namespace

uint32_t Round(long double x, FloatFormat format) {
  const uint32_t infinity = InfinityBits(format);
  if (std::isnan(x)) return infinity | (1u << (format.mantissa_bits - 1));
  const uint32_t sign =
      std::signbit(x) ? 1u << (format.exponent_bits + format.mantissa_bits) : 0;
  const long double magnitude = std::fabs(x);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  // The spacing of representable values around x; below 2^min_exponent it is
  // that of the subnormals.
  const int min_exponent = 1 - Bias(format);
  const int exponent = std::max(std::ilogb(magnitude), min_exponent);
  const int spacing_exponent = exponent - format.mantissa_bits;
  const long double steps =
      NearestEven(std::ldexp(magnitude, -spacing_exponent));
  // Counting encodings: each binade has 2^mantissa_bits steps, and a carry out
  // of one is the first of the next.
  const long double hidden = std::ldexp(1.0L, format.mantissa_bits);
  const long double encoding =
      static_cast<long double>(exponent - min_exponent) * hidden + steps;
  if (encoding >= static_cast<long double>(infinity)) return sign | infinity;
  return sign | static_cast<uint32_t>(encoding);
}

double Decode(uint32_t bits, FloatFormat format) {
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const uint32_t exponent =
      (bits >> format.mantissa_bits) & ((1u << format.exponent_bits) - 1);
  const bool is_negative =
      ((bits >> (format.exponent_bits + format.mantissa_bits)) & 1) != 0;
  const double sign = is_negative ? -1.0 : 1.0;
  if (exponent == (1u << format.exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) {
    return sign * std::ldexp(static_cast<double>(mantissa),
                             1 - Bias(format) - format.mantissa_bits);
  }
  return sign * std::ldexp(1.0 + std::ldexp(static_cast<double>(mantissa),
                                            -format.mantissa_bits),
                           static_cast<int>(exponent) - Bias(format));
}

uint8_t RoundToUint8(double x) {
  if (std::isnan(x) || x <= 0) return 0;
  if (x >= 255) return 255;
  return static_cast<uint8_t>(NearestEven(x));
}

}  // namespace datasetd::reference
