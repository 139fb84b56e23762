// The handlers of ld, st, atom, red and of addresses.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_MEMORY_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_MEMORY_H_

#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

// Bytes of local memory that a thread may use, all frames together.
inline constexpr int64_t kMaxLocalBytes = 512 * 1024;

// MicroOp: a: the base register, or kNoOperand; immediate: the offset; side:
// the data registers in FunctionCode::vectors; target: the used bytes in
// FunctionCode::used_bytes_masks, or -1.
bool RunLoad(WarpState& warp, const MicroOp& op, uint32_t mask);
bool RunStore(WarpState& warp, const MicroOp& op, uint32_t mask);

// .param variables of calls and of functions that are called. e: the offset of
// the area in the frame; reconverge: its stride.
bool RunLoadArea(WarpState& warp, const MicroOp& op, uint32_t mask);
bool RunStoreArea(WarpState& warp, const MicroOp& op, uint32_t mask);

enum class AtomicOp : uint8_t {
  kAdd,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompareAndSwap,
  kIncrement,
  kDecrement,
};

// d: the old value, or kNoOperand; b, c: operands; a, immediate: as RunLoad.
// MicroOp::variant is the AtomicOp.
Handler AtomicHandler(AtomicOp op, Type type);

// d = immediate, plus the frame's place in local memory if is_local_variable.
bool RunMoveAddress(WarpState& warp, const MicroOp& op, uint32_t mask);

// mov of a scalar, a, from or to the registers in FunctionCode::vectors[side].
// element_bytes and register_bytes are those of a part and of the whole.
bool RunPack(WarpState& warp, const MicroOp& op, uint32_t mask);
bool RunUnpack(WarpState& warp, const MicroOp& op, uint32_t mask);

// d = a + immediate: cvta from a space, and back with the negative window.
bool RunConvertAddress(WarpState& warp, const MicroOp& op, uint32_t mask);

// The index of each kind of access in BlockState::accesses.
enum class AccessClass {
  kGlobalLoad,
  kGlobalStore,
  kSharedLoad,
  kSharedStore,
  kLocalLoad,
  kLocalStore,
  kAtomic,
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_MEMORY_H_
