#include <cfenv>

#include "absl/strings/match.h"
#include "tests/emulated_gpu/ptx/arithmetic.h"
#include "tests/emulated_gpu/ptx/carry.h"
#include "tests/emulated_gpu/ptx/function_decoder.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/modifiers.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

void FunctionDecoder::DecodeFloatModifiers(Modifiers& modifiers, Type type,
                                           Handler handler) {
  op_.op_class = op_.op_class == OpClass::kDivide ? OpClass::kDivide
                 : type == Type::kF64             ? OpClass::kDouble
                                                  : OpClass::kFloat;
  op_.run = handler;
  if (modifiers.Take("approx") || modifiers.Take("full")) {
    if (!context_.options.allow_approx) Refuse(".approx is not allowed");
  }
  int mode = FE_TONEAREST;
  if (modifiers.Take("rz")) mode = FE_TOWARDZERO;
  if (modifiers.Take("rm")) mode = FE_DOWNWARD;
  if (modifiers.Take("rp")) mode = FE_UPWARD;
  modifiers.Take("rn");
  if (handler == nullptr) return;
  if (modifiers.Take("ftz")) {
    if (!context_.options.allow_ftz) Refuse(".ftz is not allowed");
    if (mode != FE_TONEAREST) Refuse(".ftz with a directed rounding");
    op_.run = &RunFlushed;
    op_.inner = handler;
  } else if (mode != FE_TONEAREST) {
    op_.run = &RunRounded;
    op_.inner = handler;
    op_.immediate = mode;
  }
}

void FunctionDecoder::DecodeAddSub() {
  Modifiers modifiers(statement_->modifiers);
  if (modifiers.Take("cc")) {
    DecodeCarry();
    return;
  }
  const Type type = NeedType(modifiers);
  const Handler handler = BinaryHandler(
      statement_->opcode == "add" ? BinaryOp::kAdd : BinaryOp::kSub, type);
  if (IsFloat(type)) {
    DecodeFloatModifiers(modifiers, type, handler);
  } else {
    op_.op_class = IntegerClass(type);
    op_.run = handler;
  }
  ThreeOperands(type, type, type);
  Finish(modifiers);
}

void FunctionDecoder::DecodeCarry() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = IntegerClass(type);
  op_.run = CarryHandler(type);
  if (absl::StartsWith(statement_->opcode, "sub")) op_.variant |= kSubtract;
  if (absl::EndsWith(statement_->opcode, "c")) op_.variant |= kCarryIn;
  if (modifiers.Take("cc")) op_.variant |= kCarryOut;
  ThreeOperands(type, type, type);
  Finish(modifiers);
}

Type FunctionDecoder::WiderType(Type type) {
  switch (type) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    default:
      return Type::kS64;
  }
}

void FunctionDecoder::DecodeMul() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  if (IsFloat(type)) {
    DecodeFloatModifiers(modifiers, type, BinaryHandler(BinaryOp::kMul, type));
    ThreeOperands(type, type, type);
  } else if (modifiers.Take("wide")) {
    op_.op_class = OpClass::kInteger;
    op_.run = BinaryHandler(BinaryOp::kMulWide, type);
    ThreeOperands(WiderType(type), type, type);
  } else {
    op_.op_class = IntegerClass(type);
    if (modifiers.Take("hi")) {
      op_.run = BinaryHandler(BinaryOp::kMulHi, type);
    } else if (modifiers.Take("lo")) {
      op_.run = BinaryHandler(BinaryOp::kMul, type);
    } else {
      Fail("needs .lo, .hi or .wide");
    }
    ThreeOperands(type, type, type);
  }
  Finish(modifiers);
}

void FunctionDecoder::DecodeMad() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  if (IsFloat(type)) {
    // "mad": of floats it is fma.
    if (!context_.options.allow_fma) Refuse("fma is not allowed");
    DecodeFloatModifiers(modifiers, type,
                         TernaryHandler(TernaryOp::kFma, type));
    FourOperands(type, type, type, type);
  } else if (modifiers.Take("wide")) {
    op_.op_class = OpClass::kInteger;
    op_.run = TernaryHandler(TernaryOp::kMadWide, type);
    FourOperands(WiderType(type), type, type, WiderType(type));
  } else {
    op_.op_class = IntegerClass(type);
    if (modifiers.Take("hi")) {
      op_.run = TernaryHandler(TernaryOp::kMadHi, type);
    } else if (modifiers.Take("lo")) {
      op_.run = TernaryHandler(TernaryOp::kMad, type);
    } else {
      Fail("needs .lo, .hi or .wide");
    }
    FourOperands(type, type, type, type);
  }
  Finish(modifiers);
}

void FunctionDecoder::DecodeFma() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  if (!context_.options.allow_fma) Refuse("fma is not allowed");
  DecodeFloatModifiers(modifiers, type, TernaryHandler(TernaryOp::kFma, type));
  FourOperands(type, type, type, type);
  Finish(modifiers);
}

void FunctionDecoder::DecodeDiv() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kDivide;
  op_.run = BinaryHandler(BinaryOp::kDiv, type);
  if (IsFloat(type)) DecodeFloatModifiers(modifiers, type, op_.run);
  ThreeOperands(type, type, type);
  Finish(modifiers);
}

void FunctionDecoder::DecodeRem() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kDivide;
  op_.run = BinaryHandler(BinaryOp::kRem, type);
  ThreeOperands(type, type, type);
  Finish(modifiers);
}

void FunctionDecoder::DecodeMinMax() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  const bool is_max = statement_->opcode == "max";
  if (IsFloat(type)) {
    const bool keeps_nan = modifiers.Take("NaN");
    DecodeFloatModifiers(
        modifiers, type,
        BinaryHandler(is_max ? (keeps_nan ? BinaryOp::kMaxNan : BinaryOp::kMax)
                             : (keeps_nan ? BinaryOp::kMinNan : BinaryOp::kMin),
                      type));
  } else {
    op_.op_class = IntegerClass(type);
    op_.run = BinaryHandler(is_max ? BinaryOp::kMax : BinaryOp::kMin, type);
  }
  ThreeOperands(type, type, type);
  Finish(modifiers);
}

void FunctionDecoder::DecodeSign() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  const Handler handler = UnaryHandler(
      statement_->opcode == "neg" ? UnaryOp::kNeg : UnaryOp::kAbs, type);
  if (IsFloat(type)) {
    DecodeFloatModifiers(modifiers, type, handler);
  } else {
    op_.op_class = IntegerClass(type);
    op_.run = handler;
  }
  if (!ExpectOperands(2)) return;
  op_.d = Destination(statement_->operands[0], type);
  op_.a = Source(statement_->operands[1], type);
  Finish(modifiers);
}

void FunctionDecoder::DecodeRoot() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kDivide;
  DecodeFloatModifiers(
      modifiers, type,
      UnaryHandler(
          statement_->opcode == "sqrt" ? UnaryOp::kSqrt : UnaryOp::kRcp, type));
  if (!ExpectOperands(2)) return;
  op_.d = Destination(statement_->operands[0], type);
  op_.a = Source(statement_->operands[1], type);
  Finish(modifiers);
}

}  // namespace datasetd::emulated_gpu
