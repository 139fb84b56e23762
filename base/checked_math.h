// Overflow-safe arithmetic on untrusted sizes, offsets and counts.
//
//   Saturating*  clamps to the range of int64_t; the largest value exceeds
//                every limit, so one comparison rejects it
//   Narrow       converts a number that was checked before; aborts if it does
//                not fit
//
// Pure functions; compile with the host compiler and nvcc.

#ifndef DATASETD_BASE_CHECKED_MATH_H_
#define DATASETD_BASE_CHECKED_MATH_H_

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <utility>

namespace datasetd {

// Returns `value` clamped to To's range and truncated towards zero; 0 for NaN.
template <typename To, typename From>
constexpr To SaturatingCast(From value) {
  static_assert(std::is_integral_v<To> && std::is_arithmetic_v<From>);
  constexpr To kLow = std::numeric_limits<To>::min();
  constexpr To kHigh = std::numeric_limits<To>::max();
  if constexpr (std::is_floating_point_v<From>) {
    // kHigh may be rounded up, and is then too large to be cast.
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

// Holds any sum or product of two 64-bit numbers.
using Wide = __int128;

constexpr int64_t Hold(Wide value) {
  constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  return value > kHigh  ? kHigh
         : value < kLow ? kLow
                        : static_cast<int64_t>(value);
}

}  // namespace checked_math_internal

constexpr int64_t SaturatingAdd(int64_t a, int64_t b) {
  return checked_math_internal::Hold(checked_math_internal::Wide{a} + b);
}

// Returns the sum of all arguments. If signs differ, the order matters.
template <typename... Rest>
constexpr int64_t SaturatingSum(int64_t first, Rest... rest) {
  ((first = SaturatingAdd(first, rest)), ...);
  return first;
}

constexpr int64_t SaturatingMultiply(int64_t a, int64_t b) {
  return checked_math_internal::Hold(checked_math_internal::Wide{a} * b);
}

// Returns the product of all arguments.
template <typename... Rest>
constexpr int64_t SaturatingProduct(int64_t first, Rest... rest) {
  ((first = SaturatingMultiply(first, rest)), ...);
  return first;
}

// Returns the smallest multiple of `multiple` >= `value`, clamped to the
// largest one. REQUIRES: value >= 0, multiple >= 1.
constexpr int64_t SaturatingRoundUp(int64_t value, int64_t multiple) {
  return SaturatingAdd(value, multiple - 1) / multiple * multiple;
}

// REQUIRES: `value` is in To's range.
template <typename To, typename From>
constexpr To Narrow(From value) {
  static_assert(std::is_integral_v<To> && std::is_integral_v<From>);
  if (!std::in_range<To>(value)) std::abort();
  return static_cast<To>(value);
}

}  // namespace datasetd

#endif  // DATASETD_BASE_CHECKED_MATH_H_
