// The handlers of arithmetic, logic, comparison and selection, for the 32 lanes
// of a warp. PTX ISA, chapter "Instructions"; the section of each stands in the
// source.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_ARITHMETIC_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_ARITHMETIC_H_

#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

enum class BinaryOp {
  kAdd,
  kSub,
  kMul,
  kMulHi,
  kMulWide,
  kDiv,
  kRem,
  kMin,
  kMax,
  kMinNan,
  kMaxNan,
  kAnd,
  kOr,
  kXor,
  kShl,
  kShr,
};

enum class UnaryOp {
  kMove,
  kNot,
  kCnot,
  kNeg,
  kAbs,
  kSqrt,
  kRcp,
  kPopc,
  kClz,
  kBrev,
};

enum class TernaryOp {
  kMad,
  kMadHi,
  kMadWide,
  kFma,
};

enum class Comparison {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};

// MicroOp::variant of a comparison.
enum class BoolOp : uint8_t { kNone, kAnd, kOr, kXor };

// nullptr: there is no such instruction for the type.
Handler BinaryHandler(BinaryOp op, Type type);
Handler UnaryHandler(UnaryOp op, Type type);
Handler TernaryHandler(TernaryOp op, Type type);
// d: the predicate, e: the second one; a, b: compared; c: combined with.
Handler CompareHandler(Comparison comparison, Type type);
// c: the predicate.
Handler SelectHandler(Type type);
// Handlers for predicates. UnaryOp is kNot or kMove.
Handler PredicateBinaryHandler(BinaryOp op);
Handler PredicateUnaryHandler(UnaryOp op);

// d = prmt(a, b, c), default mode.
bool RunPermute(WarpState& warp, const MicroOp& op, uint32_t mask);
// d = lop3(a, b, c), immediate: the table.
bool RunLop3(WarpState& warp, const MicroOp& op, uint32_t mask);
// d = shf(a, b, c): variant bit 0: right, bit 1: wrap.
bool RunFunnelShift(WarpState& warp, const MicroOp& op, uint32_t mask);
Handler BitFieldExtractHandler(Type type);
// d = bfi(a, b, c, e).
Handler BitFieldInsertHandler(Type type);

// Runs MicroOp::inner with the rounding mode of <cfenv> in `immediate`.
bool RunRounded(WarpState& warp, const MicroOp& op, uint32_t mask);
// Runs MicroOp::inner with subnormal operands and results of float as zeros.
bool RunFlushed(WarpState& warp, const MicroOp& op, uint32_t mask);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_ARITHMETIC_H_
