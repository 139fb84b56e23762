// Rounding to the output types, the same bits on host and device.
//
// Rounds to nearest even. NaN becomes the positive quiet NaN without payload,
// because processors differ in the other bits.

#ifndef DATASETD_CUDA_KERNELS_MATH_ROUNDING_H_
#define DATASETD_CUDA_KERNELS_MATH_ROUNDING_H_

#include <cstdint>
#include <cstring>

#include "cuda/kernels/math/host_device.h"

namespace datasetd {

inline constexpr uint32_t kNanFloat32 = 0x7FC00000;
inline constexpr uint16_t kNanFloat16 = 0x7E00;
inline constexpr uint16_t kNanBfloat16 = 0x7FC0;

DATASETD_HOST_DEVICE inline uint32_t FloatBits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

DATASETD_HOST_DEVICE inline float FloatFromBits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// Returns x, or the canonical NaN.
DATASETD_HOST_DEVICE inline float CanonicalFloat(float x) {
  return x == x ? x : FloatFromBits(kNanFloat32);
}

DATASETD_HOST_DEVICE inline uint16_t FloatToFloat16(float x) {
#if defined(__CUDA_ARCH__)
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return x == x ? half : kNanFloat16;
#else
  const uint32_t bits = FloatBits(x);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return kNanFloat16;
  // 65520 and above round to infinity.
  if (magnitude >= 0x477FF000) return static_cast<uint16_t>(sign | 0x7C00);
  uint32_t rounded;
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 leaves multiples of 2^-24 in the mantissa.
    rounded = FloatBits(FloatFromBits(magnitude) + 0.5f) - 0x3F000000;
  } else {
    // Rebias the exponent by 15 - 127 and round off 13 bits.
    rounded =
        (magnitude - (112u << 23) + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | rounded);
#endif
}

DATASETD_HOST_DEVICE inline uint16_t FloatToBfloat16(float x) {
  const uint32_t bits = FloatBits(x);
  if (x != x) return kNanBfloat16;
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Exact.
DATASETD_HOST_DEVICE inline float Float16ToFloat(uint16_t half) {
#if defined(__CUDA_ARCH__)
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
  return CanonicalFloat(x);
#else
  const uint32_t sign = (uint32_t{half} & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7FFF;
  if (magnitude > 0x7C00) return FloatFromBits(kNanFloat32);
  if (magnitude == 0x7C00) return FloatFromBits(sign | 0x7F800000);
  if (magnitude < 0x0400) {
    const float value = static_cast<float>(magnitude) * (1.0f / 16777216.0f);
    return FloatFromBits(sign | FloatBits(value));
  }
  return FloatFromBits(sign | ((magnitude << 13) + (112u << 23)));
#endif
}

// Rounds and clamps to 0..255; NaN becomes 0.
DATASETD_HOST_DEVICE inline uint8_t FloatToUint8(float x) {
  x = x > 0.0f ? x : 0.0f;
  x = x < 255.0f ? x : 255.0f;
  // The mantissa's last bit of a float in [2^23, 2^24) is worth 1.
  return static_cast<uint8_t>(FloatBits(x + 8388608.0f));
}

// Rounds to float32 by rounding to odd, so that a second rounding to a type of
// at most 22 bits equals a single rounding of `x`.
DATASETD_HOST_DEVICE inline float DoubleToFloatForRounding(double x) {
  const float nearest = static_cast<float>(x);
  const double back = static_cast<double>(nearest);
  if (back == x || x != x) return nearest;
  uint32_t bits = FloatBits(nearest);
  const bool is_away_from_zero = x < 0 ? back < x : back > x;
  if (is_away_from_zero) --bits;
  return FloatFromBits(bits | 1);
}

// The same for an integer.
DATASETD_HOST_DEVICE inline float Int64ToFloatForRounding(int64_t x) {
  const bool is_negative = x < 0;
  uint64_t magnitude =
      is_negative ? ~static_cast<uint64_t>(x) + 1 : static_cast<uint64_t>(x);
  double scale = is_negative ? -1.0 : 1.0;
  if (magnitude >> 53 != 0) {
    magnitude = (magnitude >> 11) | ((magnitude & 0x7FF) != 0 ? 1 : 0);
    scale *= 2048.0;
  }
  return DoubleToFloatForRounding(static_cast<double>(magnitude) * scale);
}

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MATH_ROUNDING_H_
