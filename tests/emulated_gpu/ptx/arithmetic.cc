#include "tests/emulated_gpu/ptx/arithmetic.h"

#include <xmmintrin.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"
#include "tests/emulated_gpu/ptx/warp_state.h"

namespace datasetd::emulated_gpu {
namespace {

// Wide enough that C++ computes modulo 2^bits.
template <typename T>
using Modular =
    std::conditional_t<(sizeof(T) < 4), uint32_t, std::make_unsigned_t<T>>;

// "Floating-Point Instructions": single-precision instructions give no payload;
// hardware gives this NaN. Double precision keeps payloads.
inline float Result(float value) {
  return value == value ? value : std::bit_cast<float>(0x7FFFFFFFu);
}
inline double Result(double value) { return value; }

// "add", "sub", "mul".
struct Add {
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return Result(a + b);
    } else {
      return static_cast<T>(Modular<T>(a) + Modular<T>(b));
    }
  }
};

struct Sub {
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return Result(a - b);
    } else {
      return static_cast<T>(Modular<T>(a) - Modular<T>(b));
    }
  }
};

struct Mul {
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return Result(a * b);
    } else {
      return static_cast<T>(Modular<T>(a) * Modular<T>(b));
    }
  }
};

template <typename T>
using Wider = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<
        sizeof(T) == 4,
        std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
        std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

struct MulHi {
  template <typename T>
  static T Do(T a, T b) {
    return static_cast<T>((Wider<T>(a) * Wider<T>(b)) >> (8 * sizeof(T)));
  }
};

// "div", "rem"; by zero is caught before, and the most negative number divided
// by -1 is itself.
struct Div {
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return Result(a / b);
    } else if constexpr (std::is_signed_v<T>) {
      return b == -1 ? Sub::Do<T>(0, a) : static_cast<T>(a / b);
    } else {
      return static_cast<T>(a / b);
    }
  }
};

struct Rem {
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_signed_v<T>) {
      return b == -1 ? T{0} : static_cast<T>(a % b);
    } else {
      return static_cast<T>(a % b);
    }
  }
};

// "min", "max": a NaN operand gives the other one, two give the canonical NaN;
// +0.0 is greater than -0.0. .NaN: a NaN operand gives the canonical NaN.
template <bool kIsMax, bool kKeepsNan>
struct MinMax {
  template <typename T>
  static T Do(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const bool is_nan_a = a != a;
      const bool is_nan_b = b != b;
      if (kKeepsNan ? is_nan_a || is_nan_b : is_nan_a && is_nan_b) {
        return std::is_same_v<T, float>
                   ? static_cast<T>(std::bit_cast<float>(0x7FFFFFFFu))
                   : std::numeric_limits<T>::quiet_NaN();
      }
      if (is_nan_a) return b;
      if (is_nan_b) return a;
      if (a == b) {
        const bool takes_a = std::signbit(a) != kIsMax;
        return takes_a ? a : b;
      }
    }
    return (a < b) != kIsMax ? a : b;
  }
};

struct And {
  template <typename T>
  static T Do(T a, T b) {
    return a & b;
  }
};
struct Or {
  template <typename T>
  static T Do(T a, T b) {
    return a | b;
  }
};
struct Xor {
  template <typename T>
  static T Do(T a, T b) {
    return a ^ b;
  }
};

// "shl", "shr": amounts beyond the width are clamped to it.
struct Shl {
  template <typename T>
  static T Do(T a, uint32_t amount) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    return amount >= kBits ? T{0} : static_cast<T>(Modular<T>(a) << amount);
  }
};
struct Shr {
  template <typename T>
  static T Do(T a, uint32_t amount) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if (amount >= kBits) {
      return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
    }
    return static_cast<T>(a >> amount);
  }
};

struct Move {
  template <typename T>
  static T Do(T a) {
    return a;
  }
};
struct Not {
  template <typename T>
  static T Do(T a) {
    return static_cast<T>(~a);
  }
};
struct Cnot {
  template <typename T>
  static T Do(T a) {
    return a == 0 ? T{1} : T{0};
  }
};
// "neg", "abs" of floats change the sign bit alone.
struct Neg {
  template <typename T>
  static T Do(T a) {
    if constexpr (std::is_floating_point_v<T>) {
      return -a;
    } else {
      return Sub::Do<T>(0, a);
    }
  }
};
struct Abs {
  template <typename T>
  static T Do(T a) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fabs(a);
    } else {
      return a < 0 ? Sub::Do<T>(0, a) : a;
    }
  }
};
struct Sqrt {
  template <typename T>
  static T Do(T a) {
    return Result(std::sqrt(a));
  }
};
struct Rcp {
  template <typename T>
  static T Do(T a) {
    return Result(T{1} / a);
  }
};
struct Popc {
  template <typename T>
  static uint32_t Do(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct Clz {
  template <typename T>
  static uint32_t Do(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Brev {
  template <typename T>
  static T Do(T a) {
    T reversed = 0;
    for (size_t i = 0; i < 8 * sizeof(T); ++i) {
      reversed = static_cast<T>(reversed << 1 | (a >> i & 1));
    }
    return reversed;
  }
};

template <typename F, typename D, typename A, typename B>
bool RunBinary(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const A* a = Lanes<A>(warp, op.a);
  const B* b = Lanes<B>(warp, op.b);
  D result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] = F::template Do<A>(a[i], b[i]);
  }
  Commit(warp, op.d, result, mask);
  return true;
}

// Integer division: only the lanes of the mask, and a divisor of zero is a
// fault: "div" leaves its result unspecified.
template <typename F, typename T>
bool RunDivide(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  T result[kWarpLanes] = {};
  for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
    const int i = __builtin_ctz(lanes);
    if (b[i] == 0) {
      return warp.Fail(FaultKind::kDivisionByZero,
                       "an integer is divided by zero", i);
    }
    result[i] = F::template Do<T>(a[i], b[i]);
  }
  Commit(warp, op.d, result, mask);
  return true;
}

template <typename T>
bool RunMulWide(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  Wider<T> result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] = static_cast<Wider<T>>(Modular<Wider<T>>(Wider<T>(a[i])) *
                                      Modular<Wider<T>>(Wider<T>(b[i])));
  }
  Commit(warp, op.d, result, mask);
  return true;
}

template <typename F, typename D, typename A>
bool RunUnary(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const A* a = Lanes<A>(warp, op.a);
  D result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] = F::template Do<A>(a[i]);
  }
  Commit(warp, op.d, result, mask);
  return true;
}

// "mad", "fma".
template <typename T>
bool RunMad(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  const T* c = Lanes<T>(warp, op.c);
  T result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] = Add::Do<T>(Mul::Do<T>(a[i], b[i]), c[i]);
  }
  Commit(warp, op.d, result, mask);
  return true;
}

template <typename T>
bool RunMadHi(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  const T* c = Lanes<T>(warp, op.c);
  T result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] = Add::Do<T>(MulHi::Do<T>(a[i], b[i]), c[i]);
  }
  Commit(warp, op.d, result, mask);
  return true;
}

template <typename T>
bool RunMadWide(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  const Wider<T>* c = Lanes<Wider<T>>(warp, op.c);
  Wider<T> result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    using U = Modular<Wider<T>>;
    result[i] =
        static_cast<Wider<T>>(U(Wider<T>(a[i])) * U(Wider<T>(b[i])) + U(c[i]));
  }
  Commit(warp, op.d, result, mask);
  return true;
}

template <typename T>
bool RunFma(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  const T* c = Lanes<T>(warp, op.c);
  T result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] = Result(std::fma(a[i], b[i], c[i]));
  }
  Commit(warp, op.d, result, mask);
  return true;
}

// "setp": ordered comparisons are false with a NaN, unordered ones true.
template <Comparison kComparison, typename T>
inline bool Compare(T a, T b) {
  using enum Comparison;
  if constexpr (kComparison == kEq) return a == b;
  if constexpr (kComparison == kNe) return a < b || a > b;
  if constexpr (kComparison == kLt) return a < b;
  if constexpr (kComparison == kLe) return a <= b;
  if constexpr (kComparison == kGt) return a > b;
  if constexpr (kComparison == kGe) return a >= b;
  if constexpr (kComparison == kEqu) return !(a < b || a > b);
  if constexpr (kComparison == kNeu) return a != b;
  if constexpr (kComparison == kLtu) return !(a >= b);
  if constexpr (kComparison == kLeu) return !(a > b);
  if constexpr (kComparison == kGtu) return !(a <= b);
  if constexpr (kComparison == kGeu) return !(a < b);
  if constexpr (kComparison == kNum) return a == a && b == b;
  return a != a || b != b;
}

template <Comparison kComparison, typename T>
bool RunCompare(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  uint32_t bits = 0;
  for (int i = 0; i < kWarpLanes; ++i) {
    bits |= static_cast<uint32_t>(Compare<kComparison, T>(a[i], b[i])) << i;
  }
  uint32_t inverse = ~bits;
  if (op.c != kNoOperand) {
    const uint32_t other =
        PredicateBits(warp, op.c) ^ (op.is_signed ? kAllLanes : 0);
    switch (static_cast<BoolOp>(op.variant)) {
      case BoolOp::kAnd:
        bits &= other;
        inverse &= other;
        break;
      case BoolOp::kOr:
        bits |= other;
        inverse |= other;
        break;
      case BoolOp::kXor:
        bits ^= other;
        inverse ^= other;
        break;
      case BoolOp::kNone:
        break;
    }
  }
  CommitPredicate(warp, op.d, bits, mask);
  if (op.e != kNoOperand) CommitPredicate(warp, op.e, inverse, mask);
  return true;
}

template <typename T>
bool RunSelect(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  const uint32_t bits = PredicateBits(warp, op.c);
  T result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] = (bits >> i & 1) != 0 ? a[i] : b[i];
  }
  Commit(warp, op.d, result, mask);
  return true;
}

template <typename F>
bool RunPredicateBinary(WarpState& warp, const MicroOp& op, uint32_t mask) {
  CommitPredicate(warp, op.d,
                  F::template Do<uint32_t>(PredicateBits(warp, op.a),
                                           PredicateBits(warp, op.b)),
                  mask);
  return true;
}

template <typename F>
bool RunPredicateUnary(WarpState& warp, const MicroOp& op, uint32_t mask) {
  CommitPredicate(warp, op.d,
                  F::template Do<uint32_t>(PredicateBits(warp, op.a)), mask);
  return true;
}

// "bfe": the field's sign fills what is above it.
template <typename T>
bool RunBitFieldExtract(WarpState& warp, const MicroOp& op, uint32_t mask) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  using U = std::make_unsigned_t<T>;
  const T* a = Lanes<T>(warp, op.a);
  const uint32_t* b = Lanes<uint32_t>(warp, op.b);
  const uint32_t* c = Lanes<uint32_t>(warp, op.c);
  T result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    const uint32_t position = b[i] & 0xFF;
    const uint32_t length = c[i] & 0xFF;
    const U sign =
        std::is_signed_v<T> && length > 0
            ? static_cast<U>(static_cast<U>(a[i]) >>
                                 std::min(position + length - 1, kBits - 1) &
                             1)
            : U{0};
    U field = position >= kBits ? U{0} : static_cast<U>(a[i]) >> position;
    const uint32_t available = position >= kBits ? 0 : kBits - position;
    const uint32_t kept = std::min(length, available);
    const U low = kept >= kBits ? ~U{0} : (U{1} << kept) - 1;
    field &= low;
    if (sign != 0) field |= ~low;
    result[i] = static_cast<T>(field);
  }
  Commit(warp, op.d, result, mask);
  return true;
}

// "bfi".
template <typename T>
bool RunBitFieldInsert(WarpState& warp, const MicroOp& op, uint32_t mask) {
  constexpr uint32_t kBits = 8 * sizeof(T);
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  const uint32_t* c = Lanes<uint32_t>(warp, op.c);
  const uint32_t* d = Lanes<uint32_t>(warp, op.e);
  T result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    const uint32_t position = c[i] & 0xFF;
    const uint32_t length = d[i] & 0xFF;
    result[i] = b[i];
    for (uint32_t k = 0; k < length && position + k < kBits; ++k) {
      const T bit = T{1} << (position + k);
      const bool is_set = k < kBits && (a[i] >> k & 1) != 0;
      result[i] = is_set ? result[i] | bit : result[i] & ~bit;
    }
  }
  Commit(warp, op.d, result, mask);
  return true;
}

template <typename F>
Handler IntegerBinary(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return &RunBinary<F, uint16_t, uint16_t, uint16_t>;
    case Type::kB32:
    case Type::kU32:
      return &RunBinary<F, uint32_t, uint32_t, uint32_t>;
    case Type::kB64:
    case Type::kU64:
      return &RunBinary<F, uint64_t, uint64_t, uint64_t>;
    case Type::kS16:
      return &RunBinary<F, int16_t, int16_t, int16_t>;
    case Type::kS32:
      return &RunBinary<F, int32_t, int32_t, int32_t>;
    case Type::kS64:
      return &RunBinary<F, int64_t, int64_t, int64_t>;
    default:
      return nullptr;
  }
}

template <typename F>
Handler FloatBinary(Type type) {
  switch (type) {
    case Type::kF32:
      return &RunBinary<F, float, float, float>;
    case Type::kF64:
      return &RunBinary<F, double, double, double>;
    default:
      return nullptr;
  }
}

template <typename F>
Handler NumberBinary(Type type) {
  return IsFloat(type) ? FloatBinary<F>(type) : IntegerBinary<F>(type);
}

template <typename F>
Handler DivideHandler(Type type) {
  switch (type) {
    case Type::kU16:
      return &RunDivide<F, uint16_t>;
    case Type::kU32:
      return &RunDivide<F, uint32_t>;
    case Type::kU64:
      return &RunDivide<F, uint64_t>;
    case Type::kS16:
      return &RunDivide<F, int16_t>;
    case Type::kS32:
      return &RunDivide<F, int32_t>;
    case Type::kS64:
      return &RunDivide<F, int64_t>;
    default:
      return nullptr;
  }
}

template <typename F>
Handler ShiftHandler(Type type) {
  switch (type) {
    case Type::kB16:
    case Type::kU16:
      return &RunBinary<F, uint16_t, uint16_t, uint32_t>;
    case Type::kB32:
    case Type::kU32:
      return &RunBinary<F, uint32_t, uint32_t, uint32_t>;
    case Type::kB64:
    case Type::kU64:
      return &RunBinary<F, uint64_t, uint64_t, uint32_t>;
    case Type::kS16:
      return &RunBinary<F, int16_t, int16_t, uint32_t>;
    case Type::kS32:
      return &RunBinary<F, int32_t, int32_t, uint32_t>;
    case Type::kS64:
      return &RunBinary<F, int64_t, int64_t, uint32_t>;
    default:
      return nullptr;
  }
}

template <typename F>
Handler BitsUnary(Type type) {
  switch (SizeBytes(type)) {
    case 2:
      return &RunUnary<F, uint16_t, uint16_t>;
    case 4:
      return &RunUnary<F, uint32_t, uint32_t>;
    case 8:
      return &RunUnary<F, uint64_t, uint64_t>;
    default:
      return nullptr;
  }
}

template <typename F>
Handler SignedUnary(Type type) {
  switch (type) {
    case Type::kS16:
      return &RunUnary<F, int16_t, int16_t>;
    case Type::kS32:
      return &RunUnary<F, int32_t, int32_t>;
    case Type::kS64:
      return &RunUnary<F, int64_t, int64_t>;
    case Type::kF32:
      return &RunUnary<F, float, float>;
    case Type::kF64:
      return &RunUnary<F, double, double>;
    default:
      return nullptr;
  }
}

template <typename F>
Handler FloatUnary(Type type) {
  return type == Type::kF32   ? &RunUnary<F, float, float>
         : type == Type::kF64 ? &RunUnary<F, double, double>
                              : nullptr;
}

template <Comparison kComparison>
Handler CompareOf(Type type) {
  constexpr bool kIsFloatOnly = kComparison >= Comparison::kEqu;
  if (type == Type::kF32) return &RunCompare<kComparison, float>;
  if (type == Type::kF64) return &RunCompare<kComparison, double>;
  if constexpr (!kIsFloatOnly) {
    switch (type) {
      case Type::kB16:
      case Type::kU16:
        return &RunCompare<kComparison, uint16_t>;
      case Type::kB32:
      case Type::kU32:
        return &RunCompare<kComparison, uint32_t>;
      case Type::kB64:
      case Type::kU64:
        return &RunCompare<kComparison, uint64_t>;
      case Type::kS16:
        return &RunCompare<kComparison, int16_t>;
      case Type::kS32:
        return &RunCompare<kComparison, int32_t>;
      case Type::kS64:
        return &RunCompare<kComparison, int64_t>;
      default:
        return nullptr;
    }
  }
  return nullptr;
}

}  // namespace

Handler BinaryHandler(BinaryOp op, Type type) {
  switch (op) {
    case BinaryOp::kAdd:
      return NumberBinary<Add>(type);
    case BinaryOp::kSub:
      return NumberBinary<Sub>(type);
    case BinaryOp::kMul:
      return NumberBinary<Mul>(type);
    case BinaryOp::kMulHi:
      return IsFloat(type) ? nullptr : IntegerBinary<MulHi>(type);
    case BinaryOp::kMulWide:
      switch (type) {
        case Type::kU16:
          return &RunMulWide<uint16_t>;
        case Type::kU32:
          return &RunMulWide<uint32_t>;
        case Type::kS16:
          return &RunMulWide<int16_t>;
        case Type::kS32:
          return &RunMulWide<int32_t>;
        default:
          return nullptr;
      }
    case BinaryOp::kDiv:
      return IsFloat(type) ? FloatBinary<Div>(type) : DivideHandler<Div>(type);
    case BinaryOp::kRem:
      return DivideHandler<Rem>(type);
    case BinaryOp::kMin:
      return NumberBinary<MinMax<false, false>>(type);
    case BinaryOp::kMax:
      return NumberBinary<MinMax<true, false>>(type);
    case BinaryOp::kMinNan:
      return FloatBinary<MinMax<false, true>>(type);
    case BinaryOp::kMaxNan:
      return FloatBinary<MinMax<true, true>>(type);
    case BinaryOp::kAnd:
      return IntegerBinary<And>(type);
    case BinaryOp::kOr:
      return IntegerBinary<Or>(type);
    case BinaryOp::kXor:
      return IntegerBinary<Xor>(type);
    case BinaryOp::kShl:
      return ShiftHandler<Shl>(type);
    case BinaryOp::kShr:
      return ShiftHandler<Shr>(type);
  }
  return nullptr;
}

Handler UnaryHandler(UnaryOp op, Type type) {
  switch (op) {
    case UnaryOp::kMove:
      return BitsUnary<Move>(type);
    case UnaryOp::kNot:
      return BitsUnary<Not>(type);
    case UnaryOp::kCnot:
      return BitsUnary<Cnot>(type);
    case UnaryOp::kNeg:
      return SignedUnary<Neg>(type);
    case UnaryOp::kAbs:
      return SignedUnary<Abs>(type);
    case UnaryOp::kSqrt:
      return FloatUnary<Sqrt>(type);
    case UnaryOp::kRcp:
      return FloatUnary<Rcp>(type);
    case UnaryOp::kPopc:
      return type == Type::kB32   ? &RunUnary<Popc, uint32_t, uint32_t>
             : type == Type::kB64 ? &RunUnary<Popc, uint32_t, uint64_t>
                                  : nullptr;
    case UnaryOp::kClz:
      return type == Type::kB32   ? &RunUnary<Clz, uint32_t, uint32_t>
             : type == Type::kB64 ? &RunUnary<Clz, uint32_t, uint64_t>
                                  : nullptr;
    case UnaryOp::kBrev:
      return type == Type::kB32   ? &RunUnary<Brev, uint32_t, uint32_t>
             : type == Type::kB64 ? &RunUnary<Brev, uint64_t, uint64_t>
                                  : nullptr;
  }
  return nullptr;
}

Handler TernaryHandler(TernaryOp op, Type type) {
  switch (op) {
    case TernaryOp::kFma:
      return type == Type::kF32   ? &RunFma<float>
             : type == Type::kF64 ? &RunFma<double>
                                  : nullptr;
    case TernaryOp::kMad:
      switch (SizeBytes(type)) {
        case 2:
          return &RunMad<uint16_t>;
        case 4:
          return &RunMad<uint32_t>;
        case 8:
          return &RunMad<uint64_t>;
        default:
          return nullptr;
      }
    case TernaryOp::kMadHi:
      switch (type) {
        case Type::kU32:
          return &RunMadHi<uint32_t>;
        case Type::kS32:
          return &RunMadHi<int32_t>;
        case Type::kU64:
          return &RunMadHi<uint64_t>;
        case Type::kS64:
          return &RunMadHi<int64_t>;
        default:
          return nullptr;
      }
    case TernaryOp::kMadWide:
      switch (type) {
        case Type::kU16:
          return &RunMadWide<uint16_t>;
        case Type::kS16:
          return &RunMadWide<int16_t>;
        case Type::kU32:
          return &RunMadWide<uint32_t>;
        case Type::kS32:
          return &RunMadWide<int32_t>;
        default:
          return nullptr;
      }
  }
  return nullptr;
}

Handler CompareHandler(Comparison comparison, Type type) {
  using enum Comparison;
  switch (comparison) {
    case kEq:
      return CompareOf<kEq>(type);
    case kNe:
      return CompareOf<kNe>(type);
    case kLt:
      return CompareOf<kLt>(type);
    case kLe:
      return CompareOf<kLe>(type);
    case kGt:
      return CompareOf<kGt>(type);
    case kGe:
      return CompareOf<kGe>(type);
    case kEqu:
      return CompareOf<kEqu>(type);
    case kNeu:
      return CompareOf<kNeu>(type);
    case kLtu:
      return CompareOf<kLtu>(type);
    case kLeu:
      return CompareOf<kLeu>(type);
    case kGtu:
      return CompareOf<kGtu>(type);
    case kGeu:
      return CompareOf<kGeu>(type);
    case kNum:
      return CompareOf<kNum>(type);
    case kNan:
      return CompareOf<kNan>(type);
  }
  return nullptr;
}

Handler SelectHandler(Type type) {
  switch (SizeBytes(type)) {
    case 2:
      return &RunSelect<uint16_t>;
    case 4:
      return &RunSelect<uint32_t>;
    case 8:
      return &RunSelect<uint64_t>;
    default:
      return nullptr;
  }
}

Handler PredicateBinaryHandler(BinaryOp op) {
  return op == BinaryOp::kAnd  ? &RunPredicateBinary<And>
         : op == BinaryOp::kOr ? &RunPredicateBinary<Or>
                               : &RunPredicateBinary<Xor>;
}

Handler PredicateUnaryHandler(UnaryOp op) {
  return op == UnaryOp::kNot ? &RunPredicateUnary<Not>
                             : &RunPredicateUnary<Move>;
}

// "prmt", default mode: each nibble picks a byte of {b, a}, its bit 3 copies
// that byte's sign.
bool RunPermute(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const uint32_t* a = Lanes<uint32_t>(warp, op.a);
  const uint32_t* b = Lanes<uint32_t>(warp, op.b);
  const uint32_t* c = Lanes<uint32_t>(warp, op.c);
  uint32_t result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    const uint64_t bytes = uint64_t{b[i]} << 32 | a[i];
    result[i] = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t selector = c[i] >> (4 * k) & 0xF;
      uint32_t byte =
          static_cast<uint32_t>(bytes >> (8 * (selector & 7))) & 0xFF;
      if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xFF : 0;
      result[i] |= byte << (8 * k);
    }
  }
  Commit(warp, op.d, result, mask);
  return true;
}

// "lop3": bit (a << 2 | b << 1 | c) of the table.
bool RunLop3(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const uint32_t* a = Lanes<uint32_t>(warp, op.a);
  const uint32_t* b = Lanes<uint32_t>(warp, op.b);
  const uint32_t* c = Lanes<uint32_t>(warp, op.c);
  uint32_t result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    result[i] = 0;
    for (int k = 0; k < 8; ++k) {
      if ((op.immediate >> k & 1) == 0) continue;
      result[i] |= ((k & 4) != 0 ? a[i] : ~a[i]) &
                   ((k & 2) != 0 ? b[i] : ~b[i]) &
                   ((k & 1) != 0 ? c[i] : ~c[i]);
    }
  }
  Commit(warp, op.d, result, mask);
  return true;
}

// "shf": {b, a} shifted; clamp: at most by 32, wrap: modulo 32.
bool RunFunnelShift(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const uint32_t* a = Lanes<uint32_t>(warp, op.a);
  const uint32_t* b = Lanes<uint32_t>(warp, op.b);
  const uint32_t* c = Lanes<uint32_t>(warp, op.c);
  const bool is_right = (op.variant & 1) != 0;
  const bool is_wrapped = (op.variant & 2) != 0;
  uint32_t result[kWarpLanes];
  for (int i = 0; i < kWarpLanes; ++i) {
    const uint64_t both = uint64_t{b[i]} << 32 | a[i];
    const uint32_t amount =
        is_wrapped ? c[i] & 31 : std::min<uint32_t>(c[i], 32);
    result[i] = static_cast<uint32_t>(is_right ? both >> amount
                                               : (both << amount) >> 32);
  }
  Commit(warp, op.d, result, mask);
  return true;
}

Handler BitFieldExtractHandler(Type type) {
  switch (type) {
    case Type::kU32:
      return &RunBitFieldExtract<uint32_t>;
    case Type::kS32:
      return &RunBitFieldExtract<int32_t>;
    case Type::kU64:
      return &RunBitFieldExtract<uint64_t>;
    case Type::kS64:
      return &RunBitFieldExtract<int64_t>;
    default:
      return nullptr;
  }
}

Handler BitFieldInsertHandler(Type type) {
  return type == Type::kB32   ? &RunBitFieldInsert<uint32_t>
         : type == Type::kB64 ? &RunBitFieldInsert<uint64_t>
                              : nullptr;
}

bool RunRounded(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const int mode = std::fegetround();
  std::fesetround(static_cast<int>(op.immediate));
  const bool is_good = op.inner(warp, op, mask);
  std::fesetround(mode);
  return is_good;
}

bool RunFlushed(WarpState& warp, const MicroOp& op, uint32_t mask) {
  constexpr unsigned int kFlush = 0x8040;  // FTZ, DAZ
  const unsigned int mode = _mm_getcsr();
  _mm_setcsr(mode | kFlush);
  const bool is_good = op.inner(warp, op, mask);
  _mm_setcsr(mode);
  return is_good;
}

}  // namespace datasetd::emulated_gpu
