#include "tests/emulated_gpu/ptx/convert.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"
#include "tests/emulated_gpu/ptx/warp_state.h"

namespace datasetd::emulated_gpu {
namespace {

constexpr int kF16Mantissa = 10;
constexpr int kBf16Mantissa = 7;

// Formats of 16 bits, so that they are types of C++.
struct F16 {};
struct Bf16 {};

template <typename T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, F16> || std::is_same_v<T, Bf16>;

// "Operand Size Exceeding Instruction-Type Size": a source register may be
// wider than the type, and its low bits count.
void ReadRegisters(WarpState& warp, OperandRef ref, int bytes,
                   uint64_t (&raw)[kWarpLanes]) {
  switch (bytes) {
    case 2: {
      const uint16_t* from = Lanes<uint16_t>(warp, ref);
      for (int i = 0; i < kWarpLanes; ++i) raw[i] = from[i];
      break;
    }
    case 4: {
      const uint32_t* from = Lanes<uint32_t>(warp, ref);
      for (int i = 0; i < kWarpLanes; ++i) raw[i] = from[i];
      break;
    }
    default: {
      const uint64_t* from = Lanes<uint64_t>(warp, ref);
      for (int i = 0; i < kWarpLanes; ++i) raw[i] = from[i];
      break;
    }
  }
}

void WriteRegisters(WarpState& warp, OperandRef ref, int bytes,
                    const uint64_t (&raw)[kWarpLanes], uint32_t mask) {
  switch (bytes) {
    case 2: {
      uint16_t narrow[kWarpLanes];
      for (int i = 0; i < kWarpLanes; ++i) {
        narrow[i] = static_cast<uint16_t>(raw[i]);
      }
      Commit(warp, ref, narrow, mask);
      break;
    }
    case 4: {
      uint32_t narrow[kWarpLanes];
      for (int i = 0; i < kWarpLanes; ++i) {
        narrow[i] = static_cast<uint32_t>(raw[i]);
      }
      Commit(warp, ref, narrow, mask);
      break;
    }
    default:
      Commit(warp, ref, raw, mask);
      break;
  }
}

template <typename T>
double FloatValue(uint64_t raw) {
  if constexpr (std::is_same_v<T, F16>) {
    return DecodeHalf(static_cast<uint16_t>(raw), kF16Mantissa);
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return DecodeHalf(static_cast<uint16_t>(raw), kBf16Mantissa);
  } else if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(static_cast<uint32_t>(raw));
  } else {
    return std::bit_cast<double>(raw);
  }
}

double RoundToInteger(double value, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearestInt:
      return std::nearbyint(value);
    case Rounding::kDownInt:
      return std::floor(value);
    case Rounding::kUpInt:
      return std::ceil(value);
    case Rounding::kZeroInt:
      return std::trunc(value);
    default:
      return value;
  }
}

// Float to integer: values beyond the range are clamped to it. NaN is zero if
// the source is not .f64 and the destination has less than 64 bits, else the
// top bit alone.
template <typename D, typename S>
D ToInteger(double value, Rounding rounding) {
  if (value != value) {
    if (!std::is_same_v<S, double> && sizeof(D) < 8) return 0;
    return static_cast<D>(std::make_unsigned_t<D>{1} << (8 * sizeof(D) - 1));
  }
  value = RoundToInteger(value, rounding);
  const double low = static_cast<double>(std::numeric_limits<D>::min());
  const double high =
      std::ldexp(1.0, 8 * sizeof(D) - (std::is_signed_v<D> ? 1 : 0));
  if (value <= low) return std::numeric_limits<D>::min();
  if (value >= high) return std::numeric_limits<D>::max();
  return static_cast<D>(value);
}

// To float. Rounding modes other than .rn of float and double come from the
// mode of the processor (RunRounded).
template <typename D>
uint64_t FromDouble(double value, Rounding rounding, bool saturates) {
  if (saturates) {
    // .sat: NaN is +0.0.
    value = !(value > 0.0) ? 0.0 : value > 1.0 ? 1.0 : value;
  }
  if constexpr (std::is_same_v<D, F16>) {
    return EncodeHalf(value, kF16Mantissa, rounding);
  } else if constexpr (std::is_same_v<D, Bf16>) {
    return EncodeHalf(value, kBf16Mantissa, rounding);
  } else if constexpr (std::is_same_v<D, float>) {
    if (value != value) return 0x7FFFFFFF;
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  } else {
    return std::bit_cast<uint64_t>(value);
  }
}

template <typename D, typename S>
bool RunConvert(WarpState& warp, const MicroOp& op, uint32_t mask) {
  uint64_t raw[kWarpLanes];
  uint64_t result[kWarpLanes];
  ReadRegisters(warp, op.a, op.register_bytes, raw);
  const Rounding rounding = static_cast<Rounding>(op.variant);
  const bool saturates = op.is_signed;
  constexpr bool kFromInteger = std::is_integral_v<S>;
  constexpr bool kToInteger = std::is_integral_v<D>;
  for (int i = 0; i < kWarpLanes; ++i) {
    if constexpr (kFromInteger && kToInteger) {
      // Integers are extended by the source's sign and cut; .sat clamps.
      const S value = static_cast<S>(raw[i]);
      D to = static_cast<D>(value);
      if (saturates) {
        const __int128 wide = value;
        if (wide < std::numeric_limits<D>::min()) {
          to = std::numeric_limits<D>::min();
        } else if (wide > std::numeric_limits<D>::max()) {
          to = std::numeric_limits<D>::max();
        }
      }
      // "Operand Size Exceeding Instruction-Type Size": a destination register
      // wider than the type is filled by the type's sign.
      result[i] = static_cast<uint64_t>(static_cast<int64_t>(to));
      if constexpr (!std::is_signed_v<D>) result[i] = to;
    } else if constexpr (kFromInteger) {
      const S value = static_cast<S>(raw[i]);
      if constexpr (std::is_same_v<D, float>) {
        result[i] = std::bit_cast<uint32_t>(static_cast<float>(value));
      } else if constexpr (std::is_same_v<D, double>) {
        result[i] = std::bit_cast<uint64_t>(static_cast<double>(value));
      } else {
        // Exact in double up to 53 bits; above, every half is infinite anyway.
        result[i] = FromDouble<D>(static_cast<double>(value), rounding, false);
      }
    } else if constexpr (kToInteger) {
      const D to = ToInteger<D, S>(FloatValue<S>(raw[i]), rounding);
      result[i] = std::is_signed_v<D>
                      ? static_cast<uint64_t>(static_cast<int64_t>(to))
                      : static_cast<uint64_t>(to);
    } else {
      result[i] = FromDouble<D>(RoundToInteger(FloatValue<S>(raw[i]), rounding),
                                rounding, saturates);
    }
  }
  WriteRegisters(warp, op.d, op.element_bytes, result, mask);
  return true;
}

template <typename D>
bool RunConvertPair(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const float* a = Lanes<float>(warp, op.a);
  const float* b = Lanes<float>(warp, op.b);
  const Rounding rounding = static_cast<Rounding>(op.variant);
  uint32_t result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] =
        static_cast<uint32_t>(FromDouble<D>(a[i], rounding, false) << 16 |
                              FromDouble<D>(b[i], rounding, false));
  }
  Commit(warp, op.d, result, mask);
  return true;
}

template <typename D>
Handler FromType(Type from) {
  switch (from) {
    case Type::kU8:
      return &RunConvert<D, uint8_t>;
    case Type::kU16:
      return &RunConvert<D, uint16_t>;
    case Type::kU32:
      return &RunConvert<D, uint32_t>;
    case Type::kU64:
      return &RunConvert<D, uint64_t>;
    case Type::kS8:
      return &RunConvert<D, int8_t>;
    case Type::kS16:
      return &RunConvert<D, int16_t>;
    case Type::kS32:
      return &RunConvert<D, int32_t>;
    case Type::kS64:
      return &RunConvert<D, int64_t>;
    case Type::kF16:
      return &RunConvert<D, F16>;
    case Type::kBf16:
      return &RunConvert<D, Bf16>;
    case Type::kF32:
      return &RunConvert<D, float>;
    case Type::kF64:
      return &RunConvert<D, double>;
    default:
      return nullptr;
  }
}

}  // namespace

double DecodeHalf(uint16_t bits, int mantissa_bits) {
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double value = 0.0;
  if (exponent == (1 << exponent_bits) - 1) {
    value = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                          : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  } else {
    value = std::ldexp(mantissa + (1 << mantissa_bits),
                       exponent - bias - mantissa_bits);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

uint16_t EncodeHalf(double value, int mantissa_bits, Rounding rounding) {
  if (value != value) return 0x7FFF;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const int exponent_bits = 15 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint16_t infinity =
      static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0.0) return sign;
  // The exponent of the last place of the result.
  const int place = std::max(std::ilogb(magnitude), 1 - bias) - mantissa_bits;
  const double scaled = std::ldexp(magnitude, -place);  // exact
  double whole = std::floor(scaled);
  if (rounding != Rounding::kZero) {
    const double rest = scaled - whole;
    if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) != 0.0)) {
      whole += 1.0;
    }
  }
  // Steps of the format are consecutive integers.
  int64_t bits = static_cast<int64_t>(whole);
  if (place > 1 - bias - mantissa_bits) {
    bits += int64_t{place - (1 - bias - mantissa_bits)} << mantissa_bits;
  }
  if (bits >= infinity) {
    bits = rounding == Rounding::kZero ? infinity - 1 : infinity;
  }
  return sign | static_cast<uint16_t>(bits);
}

Handler ConvertHandler(Type to, Type from) {
  switch (to) {
    case Type::kU8:
      return FromType<uint8_t>(from);
    case Type::kU16:
      return FromType<uint16_t>(from);
    case Type::kU32:
      return FromType<uint32_t>(from);
    case Type::kU64:
      return FromType<uint64_t>(from);
    case Type::kS8:
      return FromType<int8_t>(from);
    case Type::kS16:
      return FromType<int16_t>(from);
    case Type::kS32:
      return FromType<int32_t>(from);
    case Type::kS64:
      return FromType<int64_t>(from);
    case Type::kF16:
      return FromType<F16>(from);
    case Type::kBf16:
      return FromType<Bf16>(from);
    case Type::kF32:
      return FromType<float>(from);
    case Type::kF64:
      return FromType<double>(from);
    default:
      return nullptr;
  }
}

Handler ConvertPairHandler(Type to) {
  return to == Type::kF16x2    ? &RunConvertPair<F16>
         : to == Type::kBf16x2 ? &RunConvertPair<Bf16>
                               : nullptr;
}

}  // namespace datasetd::emulated_gpu
