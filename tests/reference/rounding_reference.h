// Rounding to small floating point types by definition, for tests.

#ifndef DATASETD_TESTS_REFERENCE_ROUNDING_REFERENCE_H_
#define DATASETD_TESTS_REFERENCE_ROUNDING_REFERENCE_H_

#include <cstdint>

namespace datasetd::reference {

// An IEEE 754 binary format of at most 32 bits.
struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;  // without the hidden one
};

inline constexpr FloatFormat kFloat16 = {5, 10};
inline constexpr FloatFormat kBfloat16 = {8, 7};
inline constexpr FloatFormat kFloat32 = {8, 23};

// The encoding of the representable value nearest to `x`, ties to the even
// mantissa; NaN is quiet, positive and without payload.
uint32_t Round(long double x, FloatFormat format);

// The value that an encoding stands for.
double Decode(uint32_t bits, FloatFormat format);

// The nearest integer in 0..255, ties to even; NaN is 0.
uint8_t RoundToUint8(double x);

}  // namespace datasetd::reference

#endif  // DATASETD_TESTS_REFERENCE_ROUNDING_REFERENCE_H_
