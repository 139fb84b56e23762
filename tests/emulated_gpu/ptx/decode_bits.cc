#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/arithmetic.h"
#include "tests/emulated_gpu/ptx/function_decoder.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/modifiers.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

void FunctionDecoder::DecodeLogic() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  const absl::string_view opcode = statement_->opcode;
  const bool is_unary = opcode == "not" || opcode == "cnot";
  if (is_unary) {
    const UnaryOp unary = opcode == "not" ? UnaryOp::kNot : UnaryOp::kCnot;
    op_.run = type == Type::kPred ? PredicateUnaryHandler(unary)
                                  : UnaryHandler(unary, type);
    if (!ExpectOperands(2)) return;
    op_.d = Destination(statement_->operands[0], type);
    op_.a = Source(statement_->operands[1], type);
  } else {
    const BinaryOp binary = opcode == "and"  ? BinaryOp::kAnd
                            : opcode == "or" ? BinaryOp::kOr
                                             : BinaryOp::kXor;
    op_.run = type == Type::kPred ? PredicateBinaryHandler(binary)
                                  : BinaryHandler(binary, type);
    ThreeOperands(type, type, type);
  }
  op_.op_class = type == Type::kPred ? OpClass::kCompare : IntegerClass(type);
  Finish(modifiers);
}

void FunctionDecoder::DecodeShift() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = IntegerClass(type);
  op_.run = BinaryHandler(
      statement_->opcode == "shl" ? BinaryOp::kShl : BinaryOp::kShr, type);
  ThreeOperands(type, type, Type::kU32);
  Finish(modifiers);
}

void FunctionDecoder::DecodeFunnelShift() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kInteger;
  op_.run = &RunFunnelShift;
  if (modifiers.Take("r")) {
    op_.variant |= 1;
  } else if (!modifiers.Take("l")) {
    Fail("needs .l or .r");
  }
  if (modifiers.Take("wrap")) {
    op_.variant |= 2;
  } else if (!modifiers.Take("clamp")) {
    Fail("needs .clamp or .wrap");
  }
  FourOperands(type, Type::kB32, Type::kB32, Type::kU32);
  Finish(modifiers);
}

void FunctionDecoder::DecodeBits() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  const UnaryOp unary = statement_->opcode == "popc"  ? UnaryOp::kPopc
                        : statement_->opcode == "clz" ? UnaryOp::kClz
                                                      : UnaryOp::kBrev;
  op_.op_class = IntegerClass(type);
  op_.run = UnaryHandler(unary, type);
  if (!ExpectOperands(2)) return;
  op_.d = Destination(statement_->operands[0],
                      unary == UnaryOp::kBrev ? type : Type::kU32);
  op_.a = Source(statement_->operands[1], type);
  Finish(modifiers);
}

void FunctionDecoder::DecodeBitField() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = IntegerClass(type);
  if (statement_->opcode == "bfe") {
    op_.run = BitFieldExtractHandler(type);
    FourOperands(type, type, Type::kU32, Type::kU32);
  } else {
    op_.run = BitFieldInsertHandler(type);
    if (!ExpectOperands(5)) return;
    op_.d = Destination(statement_->operands[0], type);
    op_.a = Source(statement_->operands[1], type);
    op_.b = Source(statement_->operands[2], type);
    op_.c = Source(statement_->operands[3], Type::kU32);
    op_.e = Source(statement_->operands[4], Type::kU32);
  }
  Finish(modifiers);
}

void FunctionDecoder::DecodePermute() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kInteger;
  op_.run = &RunPermute;
  FourOperands(type, type, type, type);
  Finish(modifiers);
}

void FunctionDecoder::DecodeLop3() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kInteger;
  op_.run = &RunLop3;
  if (!ExpectOperands(5)) return;
  op_.d = Destination(statement_->operands[0], type);
  op_.a = Source(statement_->operands[1], type);
  op_.b = Source(statement_->operands[2], type);
  op_.c = Source(statement_->operands[3], type);
  op_.immediate = statement_->operands[4].value;
  Finish(modifiers);
}

}  // namespace datasetd::emulated_gpu
