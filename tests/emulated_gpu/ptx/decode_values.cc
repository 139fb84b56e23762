#include <cfenv>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/arithmetic.h"
#include "tests/emulated_gpu/ptx/convert.h"
#include "tests/emulated_gpu/ptx/exchange.h"
#include "tests/emulated_gpu/ptx/frame.h"
#include "tests/emulated_gpu/ptx/function_decoder.h"
#include "tests/emulated_gpu/ptx/memory.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/modifiers.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

void FunctionDecoder::DecodeCompare() {
  using enum Comparison;
  constexpr std::pair<absl::string_view, Comparison> kNames[] = {
      {"eq", kEq},   {"ne", kNe},   {"lt", kLt},   {"le", kLe},   {"gt", kGt},
      {"ge", kGe},   {"lo", kLt},   {"ls", kLe},   {"hi", kGt},   {"hs", kGe},
      {"equ", kEqu}, {"neu", kNeu}, {"ltu", kLtu}, {"leu", kLeu}, {"gtu", kGtu},
      {"geu", kGeu}, {"num", kNum}, {"nan", kNan}};
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kCompare;
  for (const auto& [name, comparison] : kNames) {
    if (modifiers.Take(name)) {
      op_.run = CompareHandler(comparison, type);
      break;
    }
  }
  BoolOp combine = BoolOp::kNone;
  if (modifiers.Take("and")) combine = BoolOp::kAnd;
  if (modifiers.Take("or")) combine = BoolOp::kOr;
  if (modifiers.Take("xor")) combine = BoolOp::kXor;
  op_.variant = static_cast<uint8_t>(combine);
  if (modifiers.Take("ftz")) {
    if (!context_.options.allow_ftz) Refuse(".ftz is not allowed");
    op_.inner = std::exchange(op_.run, &RunFlushed);
  }
  if (!ExpectOperands(combine == BoolOp::kNone ? 3 : 4)) return;
  const Operand& to = statement_->operands[0];
  if (to.kind == Operand::Kind::kPair) {
    op_.d = RegisterRef(to.parts[0], 0);
    op_.e = RegisterRef(to.parts[1], 0);
  } else {
    op_.d = RegisterRef(to, 0);
  }
  op_.a = Source(statement_->operands[1], type);
  op_.b = Source(statement_->operands[2], type);
  if (combine != BoolOp::kNone) {
    op_.c = PredicateSource(statement_->operands[3], &op_.is_signed);
  }
  Finish(modifiers);
}

void FunctionDecoder::DecodeSelect() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kCompare;
  op_.run = SelectHandler(type);
  if (!ExpectOperands(4)) return;
  op_.d = Destination(statement_->operands[0], type);
  op_.a = Source(statement_->operands[1], type);
  op_.b = Source(statement_->operands[2], type);
  op_.c = RegisterRef(statement_->operands[3], 0);
  Finish(modifiers);
}

void FunctionDecoder::DecodeConvert() {
  Modifiers modifiers(statement_->modifiers);
  const Type to = NeedType(modifiers);
  const Type from = NeedType(modifiers);
  op_.op_class = OpClass::kConvert;
  constexpr std::pair<absl::string_view, Rounding> kModes[] = {
      {"rn", Rounding::kNearest},     {"rz", Rounding::kZero},
      {"rm", Rounding::kDown},        {"rp", Rounding::kUp},
      {"rni", Rounding::kNearestInt}, {"rzi", Rounding::kZeroInt},
      {"rmi", Rounding::kDownInt},    {"rpi", Rounding::kUpInt}};
  Rounding rounding = Rounding::kNone;
  for (const auto& [name, mode] : kModes) {
    if (modifiers.Take(name)) rounding = mode;
  }
  op_.variant = static_cast<uint8_t>(rounding);
  op_.is_signed = modifiers.Take("sat");
  if (modifiers.Take("ftz")) Refuse(".ftz is not allowed");
  const bool is_directed = rounding == Rounding::kZero ||
                           rounding == Rounding::kDown ||
                           rounding == Rounding::kUp;
  // "cvt": .rn, .rz, .rm, .rp where a float is made of more bits; .rni and
  // the like where an integer is made of a float.
  if (IsFloat(from) && !IsFloat(to) && rounding < Rounding::kNearestInt) {
    Fail("float to integer needs .rni, .rzi, .rmi or .rpi");
  }
  if (to == Type::kF16x2 || to == Type::kBf16x2) {
    op_.run = ConvertPairHandler(to);
    if (rounding != Rounding::kNearest && rounding != Rounding::kZero) {
      Refuse("only .rn and .rz are known");
    }
    ThreeOperands(Type::kB32, Type::kF32, Type::kF32);
    Finish(modifiers);
    return;
  }
  if (SizeBytes(to) == 2 && IsFloat(to) && is_directed &&
      rounding != Rounding::kZero) {
    Refuse("only .rn and .rz are known");
  }
  op_.run = ConvertHandler(to, from);
  if (is_directed && SizeBytes(to) >= 4 && IsFloat(to)) {
    op_.inner = std::exchange(op_.run, &RunRounded);
    op_.immediate = rounding == Rounding::kZero ? FE_TOWARDZERO
                    : rounding == Rounding::kUp ? FE_UPWARD
                                                : FE_DOWNWARD;
  }
  if (!ExpectOperands(2)) return;
  const Operand& d = statement_->operands[0];
  const Operand& a = statement_->operands[1];
  op_.element_bytes = static_cast<uint8_t>(BytesOf(d));
  op_.register_bytes = static_cast<uint8_t>(
      a.kind == Operand::Kind::kRegister ? BytesOf(a) : RegisterBytes(from));
  if (op_.element_bytes < SizeBytes(to) ||
      op_.register_bytes < SizeBytes(from)) {
    Fail("a register is narrower than its type");
    return;
  }
  op_.d = RegisterRef(d, op_.element_bytes);
  op_.a = a.kind == Operand::Kind::kRegister
              ? RegisterRef(a, op_.register_bytes)
              : Source(a, from);
  Finish(modifiers);
}

void FunctionDecoder::DecodeMove() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kMove;
  if (!ExpectOperands(2)) return;
  const Operand& d = statement_->operands[0];
  const Operand& a = statement_->operands[1];
  if (type == Type::kPred) {
    op_.run = PredicateUnaryHandler(UnaryOp::kMove);
    op_.d = RegisterRef(d, 0);
    op_.a = Source(a, Type::kPred);
  } else if (d.kind == Operand::Kind::kVector) {
    DecodePack(d.parts, a, type, &RunUnpack);
  } else if (a.kind == Operand::Kind::kVector) {
    DecodePack(a.parts, d, type, &RunPack);
  } else if (a.kind == Operand::Kind::kVariable) {
    Space space;
    int area;
    if (!VariableAddress(a, &space, &op_.immediate, &area)) return;
    if (area >= 0) {
      Refuse("the address of a parameter of a function");
    }
    op_.run = &RunMoveAddress;
    op_.register_bytes = static_cast<uint8_t>(SizeBytes(type));
    op_.d = Destination(d, type);
  } else if (a.kind == Operand::Kind::kName) {
    const auto special = FindSpecialRegister(a.name);
    if (!special.has_value()) {
      Refuse(absl::StrCat(a.name, " is not known"));
      return;
    }
    op_.run = &RunSpecial;
    op_.variant = static_cast<uint8_t>(*special);
    op_.register_bytes = static_cast<uint8_t>(SizeBytes(type));
    op_.d = Destination(d, type);
  } else {
    op_.run = UnaryHandler(UnaryOp::kMove, type);
    op_.d = Destination(d, type);
    op_.a = Source(a, type);
  }
  Finish(modifiers);
}

void FunctionDecoder::DecodePack(const std::vector<Operand>& parts,
                                 const Operand& whole, Type type,
                                 Handler handler) {
  const int bytes = SizeBytes(type);
  const int part_bytes =
      parts.empty() ? 0 : bytes / static_cast<int>(parts.size());
  if (part_bytes < 2) {
    Refuse("parts of less than 16 bits");
    return;
  }
  std::vector<OperandRef> refs;
  for (const Operand& part : parts) {
    if (part.kind == Operand::Kind::kName && part.name == "_") {
      refs.push_back(kNoOperand);
    } else if (part.kind == Operand::Kind::kInteger) {
      refs.push_back(Constant(
          Cut(static_cast<uint64_t>(part.value), part_bytes), part_bytes));
    } else {
      refs.push_back(RegisterRef(part, part_bytes));
    }
  }
  op_.run = handler;
  op_.element_bytes = static_cast<uint8_t>(part_bytes);
  op_.register_bytes = static_cast<uint8_t>(bytes);
  op_.side = static_cast<int32_t>(code_.vectors.size());
  code_.vectors.push_back(std::move(refs));
  op_.a = whole.kind == Operand::Kind::kRegister ? RegisterRef(whole, bytes)
                                                 : Source(whole, type);
}

}  // namespace datasetd::emulated_gpu
