#include "tests/emulated_gpu/ptx/carry.h"

#include <cstdint>

#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"
#include "tests/emulated_gpu/ptx/warp_state.h"

namespace datasetd::emulated_gpu {
namespace {

template <typename T>
bool RunCarry(WarpState& warp, const MicroOp& op, uint32_t mask) {
  const T* a = Lanes<T>(warp, op.a);
  const T* b = Lanes<T>(warp, op.b);
  const uint32_t carry_in = (op.variant & kCarryIn) != 0 ? warp.carry : 0;
  T result[kWarpLanes];
  uint32_t carry_out = 0;
  for (int i = 0; i < kWarpLanes; ++i) {
    const T carry = carry_in >> i & 1;
    bool first, second;
    T sum;
    if ((op.variant & kSubtract) != 0) {
      first = __builtin_sub_overflow(a[i], b[i], &sum);
      second = __builtin_sub_overflow(sum, carry, &result[i]);
    } else {
      first = __builtin_add_overflow(a[i], b[i], &sum);
      second = __builtin_add_overflow(sum, carry, &result[i]);
    }
    carry_out |= static_cast<uint32_t>(first || second) << i;
  }
  Commit(warp, op.d, result, mask);
  if ((op.variant & kCarryOut) != 0) {
    warp.carry = (warp.carry & ~mask) | (carry_out & mask);
  }
  return true;
}

}  // namespace

Handler CarryHandler(Type type) {
  switch (type) {
    case Type::kU32:
    case Type::kS32:
      return &RunCarry<uint32_t>;
    case Type::kU64:
    case Type::kS64:
      return &RunCarry<uint64_t>;
    default:
      return nullptr;
  }
}

}  // namespace datasetd::emulated_gpu
