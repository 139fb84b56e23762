// Arithmetic on sizes, offsets and counts that come from outside: it never
// wraps around.
//
//   Saturating*  a result that does not fit is the nearest int64_t: the largest
//                is above every limit, so that one comparison refuses it
//   Checked*     nullopt where a result does not fit
//   Narrow       a conversion of a number that was checked before; ends the
//                process where that is not so
//
// Pure; for the host compiler and nvcc.

#ifndef DATASETD_BASE_CHECKED_MATH_H_
#define DATASETD_BASE_CHECKED_MATH_H_

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

namespace datasetd {

// `value`, or the end of To's range that is nearer to it; of NaN it is 0. A
// fraction is cut off.
template <typename To, typename From>
constexpr To SaturatingCast(From value) {
  static_assert(std::is_integral_v<To> && std::is_arithmetic_v<From>);
  constexpr To kLow = std::numeric_limits<To>::min();
  constexpr To kHigh = std::numeric_limits<To>::max();
  if constexpr (std::is_floating_point_v<From>) {
    // The end itself may be rounded up, and is then too large to be cast.
    if (value >= static_cast<From>(kHigh)) return kHigh;
    if (value <= static_cast<From>(kLow)) return kLow;
    return value == value ? static_cast<To>(value) : To{0};
  } else {
    if (std::cmp_greater(value, kHigh)) return kHigh;
    if (std::cmp_less(value, kLow)) return kLow;
    return static_cast<To>(value);
  }
}

namespace checked_math_internal {

// Any sum or product of two numbers of 64 bits.
using Wide = __int128;

constexpr int64_t Hold(Wide value) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  return value > kHigh  ? kHigh
         : value < kLow ? kLow
                        : static_cast<int64_t>(value);
}

constexpr std::optional<int64_t> Check(Wide value) {
  if (Hold(value) != value) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace checked_math_internal

constexpr int64_t SaturatingAdd(int64_t a, int64_t b) {
  return checked_math_internal::Hold(checked_math_internal::Wide{a} + b);
}

// Of all of them. The order does not matter but where signs differ.
template <typename... Rest>
constexpr int64_t SaturatingSum(int64_t first, Rest... rest) {
  ((first = SaturatingAdd(first, rest)), ...);
  return first;
}

constexpr int64_t SaturatingMultiply(int64_t a, int64_t b) {
  return checked_math_internal::Hold(checked_math_internal::Wide{a} * b);
}

// Of all of them.
template <typename... Rest>
constexpr int64_t SaturatingProduct(int64_t first, Rest... rest) {
  ((first = SaturatingMultiply(first, rest)), ...);
  return first;
}

// The next multiple from `value` on; held at the largest one.
// REQUIRES: value >= 0, multiple >= 1.
constexpr int64_t SaturatingRoundUp(int64_t value, int64_t multiple) {
  return SaturatingAdd(value, multiple - 1) / multiple * multiple;
}

constexpr std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  return checked_math_internal::Check(checked_math_internal::Wide{a} + b);
}

constexpr std::optional<int64_t> CheckedMultiply(int64_t a, int64_t b) {
  return checked_math_internal::Check(checked_math_internal::Wide{a} * b);
}

// nullopt where To does not have the value.
template <typename To, typename From>
constexpr std::optional<To> CheckedCast(From value) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  if (!std::in_range<To>(value)) return std::nullopt;
  return static_cast<To>(value);
}

// REQUIRES: To has the value.
template <typename To, typename From>
constexpr To Narrow(From value) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  if (!std::in_range<To>(value)) std::abort();
  return static_cast<To>(value);
}

}  // namespace datasetd

#endif  // DATASETD_BASE_CHECKED_MATH_H_
