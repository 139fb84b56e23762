#include "tests/emulated_gpu/ptx/decoder.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/arithmetic.h"
#include "tests/emulated_gpu/ptx/convert.h"
#include "tests/emulated_gpu/ptx/exchange.h"
#include "tests/emulated_gpu/ptx/flow.h"
#include "tests/emulated_gpu/ptx/frame.h"
#include "tests/emulated_gpu/ptx/memory.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {
namespace {

int64_t AlignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// The modifiers of one opcode, taken one by one; what is left is refused.
class Modifiers {
 public:
  explicit Modifiers(const std::vector<absl::string_view>& all) : left_(all) {}

  bool Take(absl::string_view name) {
    const auto found = std::find(left_.begin(), left_.end(), name);
    if (found == left_.end()) return false;
    left_.erase(found);
    return true;
  }

  std::optional<Type> TakeType() {
    for (auto it = left_.begin(); it != left_.end(); ++it) {
      const auto type = ParseType(*it);
      if (!type.has_value()) continue;
      left_.erase(it);
      return type;
    }
    return std::nullopt;
  }

  // The first that starts so; empty: none.
  absl::string_view TakePrefix(absl::string_view prefix) {
    for (auto it = left_.begin(); it != left_.end(); ++it) {
      if (!absl::StartsWith(*it, prefix)) continue;
      const absl::string_view text = *it;
      left_.erase(it);
      return text;
    }
    return {};
  }

  const std::vector<absl::string_view>& left() const { return left_; }

 private:
  std::vector<absl::string_view> left_;
};

class Decoder {
 public:
  Decoder(const FunctionSyntax& function, const DecodeContext& context)
      : function_(function), context_(context) {}

  absl::StatusOr<FunctionCode> Run() {
    absl::StatusOr<Flow> flow = AnalyseFlow(function_);
    if (!flow.ok()) return flow.status();
    flow_ = *std::move(flow);
    code_.name = std::string(function_.name);
    code_.is_entry = function_.is_entry;
    code_.max_threads = function_.max_threads;
    PlaceFrame();
    PlaceVariables();
    for (size_t i = 0; i < function_.statements.size(); ++i) {
      statement_ = &function_.statements[i];
      op_ = MicroOp();
      Decode(static_cast<int>(i));
      if (!error_.ok()) return error_;
      Track();
      code_.ops.push_back(op_);
      code_.lines.push_back(statement_->line);
      code_.locations.push_back(statement_->location);
    }
    MicroOp end;
    end.kind = OpKind::kEnd;
    code_.ops.push_back(end);
    code_.lines.push_back(function_.line);
    code_.locations.push_back(-1);
    return std::move(code_);
  }

 private:
  // --- Frame and variables.

  void PlaceFrame() {
    const RegisterFrame frame = PlaceRegisters(function_, flow_);
    offsets_ = frame.offsets;
    code_.tracked_offset = frame.size_bytes;
    tracked_.assign(function_.registers.size(), 0);
    uint32_t at = frame.size_bytes;
    for (size_t reg = 0; reg < function_.registers.size(); ++reg) {
      const Register& r = function_.registers[reg];
      code_.register_names.push_back(
          r.number < 0 ? std::string(r.name) : absl::StrCat(r.name, r.number));
      if (!flow_.maybe_unwritten.Has(reg)) continue;
      tracked_[reg] = at;
      at += 4;
    }
    code_.tracked_bytes = at - frame.size_bytes;
    code_.frame_bytes = (at + 64) / 64 * 64;
  }

  void PlaceVariables() {
    int64_t shared = context_.first_shared_byte;
    int64_t local = 0;
    offsets_of_variables_.resize(function_.variables.size());
    code_.areas.resize(function_.variables.size());
    const int num_own = function_.num_returns + function_.num_parameters;
    for (int i = 0; i < static_cast<int>(function_.variables.size()); ++i) {
      const Variable& variable = function_.variables[i];
      int64_t offset = variable.offset_bytes;
      if (variable.space == Space::kShared) {
        offset = AlignUp(shared, variable.alignment);
        shared = offset + variable.size_bytes;
      } else if (variable.space == Space::kLocal) {
        offset = AlignUp(local, variable.alignment);
        local = offset + variable.size_bytes;
      } else if (!function_.is_entry || i >= num_own) {
        code_.areas[i] = {code_.frame_bytes,
                          static_cast<int32_t>(variable.size_bytes)};
        code_.frame_bytes += static_cast<uint32_t>(
            AlignUp(variable.size_bytes * kWarpLanes, 64));
      }
      offsets_of_variables_[i] = offset;
      if (i >= num_own) continue;
      Variable own = variable;
      std::vector<Variable>& group = i < function_.num_returns
                                         ? code_.returns
                                         : code_.parameters;
      own.name = {};
      group.push_back(own);
      code_.name_storage.push_back(std::string(variable.name));
      if (i >= function_.num_returns) {
        code_.parameter_bytes = offset + variable.size_bytes;
      }
    }
    code_.local_bytes = AlignUp(local, 16);
    code_.static_shared_bytes = shared;
  }

  // --- Errors.

  void Refuse(absl::string_view what) {
    if (!error_.ok()) return;
    error_ = absl::UnimplementedError(absl::StrCat(
        "line ", statement_->line, ": ", Name(), ": ", what));
  }

  void Fail(absl::string_view what) {
    if (!error_.ok()) return;
    error_ = absl::InvalidArgumentError(absl::StrCat(
        "line ", statement_->line, ": ", Name(), ": ", what));
  }

  std::string Name() const {
    std::string name(statement_->opcode);
    for (const absl::string_view modifier : statement_->modifiers) {
      absl::StrAppend(&name, ".", modifier);
    }
    return name;
  }

  bool ExpectOperands(size_t count) {
    if (statement_->operands.size() == count) return true;
    Fail(absl::StrCat("has ", statement_->operands.size(), " operands, not ",
                      count));
    return false;
  }

  void Finish(const Modifiers& modifiers) {
    if (!modifiers.left().empty()) {
      Refuse(absl::StrCat("modifier .", modifiers.left()[0],
                          " is not known"));
    }
    if (op_.kind == OpKind::kCompute && op_.run == nullptr) {
      Refuse("there is no such instruction for this type");
    }
  }

  Type NeedType(Modifiers& modifiers) {
    const std::optional<Type> type = modifiers.TakeType();
    if (!type.has_value()) Fail("has no type");
    return type.value_or(Type::kB32);
  }

  // --- Operands.

  OperandRef Constant(uint64_t value, int bytes) {
    const auto [found, is_new] = constants_.try_emplace({bytes, value}, 0);
    if (!is_new) return found->second;
    const int lane_bytes = bytes == 0 ? 4 : bytes;
    const int count = bytes == 0 ? 1 : kWarpLanes;
    size_t at = code_.constants.size();
    code_.constants.resize(at + static_cast<size_t>(
                                    std::max(64, lane_bytes * count)));
    found->second = static_cast<OperandRef>(at) | kConstantBank;
    for (int i = 0; i < count; ++i, at += lane_bytes) {
      std::memcpy(&code_.constants[at], &value, lane_bytes);
    }
    return found->second;
  }

  OperandRef RegisterRef(const Operand& operand, int bytes) {
    if (operand.kind != Operand::Kind::kRegister) {
      Fail("an operand is no register");
      return 0;
    }
    const int has = RegisterBytes(function_.registers[operand.index].type);
    if (has != bytes) {
      Fail(absl::StrCat("register ", code_.register_names[operand.index],
                        " has ", has * 8, " bits, the instruction ",
                        bytes * 8));
    }
    return offsets_[operand.index];
  }

  int BytesOf(const Operand& operand) const {
    return operand.kind == Operand::Kind::kRegister
               ? RegisterBytes(function_.registers[operand.index].type)
               : 0;
  }

  OperandRef Destination(const Operand& operand, Type type) {
    return RegisterRef(operand, RegisterBytes(type));
  }

  // A register or a constant of `type`. PTX ISA, "Constants".
  OperandRef Source(const Operand& operand, Type type) {
    const int bytes = RegisterBytes(type);
    switch (operand.kind) {
      case Operand::Kind::kInteger:
        if (IsFloat(type)) {
          Fail("an integer constant for a float");
          return 0;
        }
        if (type == Type::kPred) {
          return Constant(operand.value != 0 ? kAllLanes : 0, 0);
        }
        return Constant(Cut(static_cast<uint64_t>(operand.value), bytes),
                        bytes);
      case Operand::Kind::kFloat: {
        uint64_t bits = static_cast<uint64_t>(operand.value);
        if (bytes == 4 && !operand.is_single) {
          bits = std::bit_cast<uint32_t>(
              static_cast<float>(std::bit_cast<double>(bits)));
        } else if (bytes == 8 && operand.is_single) {
          bits = std::bit_cast<uint64_t>(static_cast<double>(
              std::bit_cast<float>(static_cast<uint32_t>(bits))));
        }
        return Constant(bits, bytes);
      }
      case Operand::Kind::kRegister:
        if (operand.is_negated) Fail("a negated operand");
        return RegisterRef(operand, bytes);
      default:
        Refuse(absl::StrCat("operand ", operand.name, " is not known here"));
        return 0;
    }
  }

  static uint64_t Cut(uint64_t value, int bytes) {
    return bytes == 8 ? value : value & ((uint64_t{1} << (8 * bytes)) - 1);
  }

  OperandRef PredicateSource(const Operand& operand, bool* is_negated) {
    *is_negated = operand.is_negated;
    if (operand.kind == Operand::Kind::kInteger) {
      return Source(operand, Type::kPred);
    }
    return RegisterRef(operand, 0);
  }

  void ThreeOperands(Type d, Type a, Type b) {
    if (!ExpectOperands(3)) return;
    op_.d = Destination(statement_->operands[0], d);
    op_.a = Source(statement_->operands[1], a);
    op_.b = Source(statement_->operands[2], b);
  }

  void FourOperands(Type d, Type a, Type b, Type c) {
    if (!ExpectOperands(4)) return;
    op_.d = Destination(statement_->operands[0], d);
    op_.a = Source(statement_->operands[1], a);
    op_.b = Source(statement_->operands[2], b);
    op_.c = Source(statement_->operands[3], c);
  }

  // --- Registers that may be read unwritten.

  void Track() {
    const Accesses accesses = FindAccesses(*statement_);
    TrackedOperands tracked;
    for (const int reg : accesses.reads) {
      if (tracked_[reg] == 0) continue;
      tracked.reads.push_back(
          {tracked_[reg], reg, reg == statement_->predicate});
    }
    for (const int reg : accesses.writes) {
      if (tracked_[reg] != 0) tracked.writes.push_back(tracked_[reg]);
    }
    if (tracked.reads.empty() && tracked.writes.empty()) return;
    tracked.is_copy =
        statement_->opcode == "mov" || statement_->opcode == "selp";
    op_.tracked = static_cast<int32_t>(code_.tracked.size());
    code_.tracked.push_back(std::move(tracked));
  }

  // --- Instructions.

  void Decode(int index) {
    if (statement_->predicate >= 0) {
      op_.predicate = offsets_[statement_->predicate];
      op_.is_predicate_negated = statement_->is_predicate_negated;
      if (function_.registers[statement_->predicate].type != Type::kPred) {
        Fail("the guard is no predicate");
        return;
      }
    }
    using Method = void (Decoder::*)();
    static const auto& methods = *new std::map<absl::string_view, Method>{
        {"add", &Decoder::DecodeAddSub},
        {"sub", &Decoder::DecodeAddSub},
        {"mul", &Decoder::DecodeMul},
        {"mad", &Decoder::DecodeMad},
        {"fma", &Decoder::DecodeFma},
        {"div", &Decoder::DecodeDiv},
        {"rem", &Decoder::DecodeRem},
        {"min", &Decoder::DecodeMinMax},
        {"max", &Decoder::DecodeMinMax},
        {"and", &Decoder::DecodeLogic},
        {"or", &Decoder::DecodeLogic},
        {"xor", &Decoder::DecodeLogic},
        {"not", &Decoder::DecodeLogic},
        {"cnot", &Decoder::DecodeLogic},
        {"shl", &Decoder::DecodeShift},
        {"shr", &Decoder::DecodeShift},
        {"shf", &Decoder::DecodeFunnelShift},
        {"neg", &Decoder::DecodeSign},
        {"abs", &Decoder::DecodeSign},
        {"sqrt", &Decoder::DecodeRoot},
        {"rcp", &Decoder::DecodeRoot},
        {"popc", &Decoder::DecodeBits},
        {"clz", &Decoder::DecodeBits},
        {"brev", &Decoder::DecodeBits},
        {"bfe", &Decoder::DecodeBitField},
        {"bfi", &Decoder::DecodeBitField},
        {"prmt", &Decoder::DecodePermute},
        {"lop3", &Decoder::DecodeLop3},
        {"setp", &Decoder::DecodeCompare},
        {"selp", &Decoder::DecodeSelect},
        {"cvt", &Decoder::DecodeConvert},
        {"mov", &Decoder::DecodeMove},
        {"cvta", &Decoder::DecodeConvertAddress},
        {"ld", &Decoder::DecodeLoad},
        {"st", &Decoder::DecodeStore},
        {"atom", &Decoder::DecodeAtomic},
        {"red", &Decoder::DecodeAtomic},
        {"bra", &Decoder::DecodeBranch},
        {"brx", &Decoder::DecodeBranchTable},
        {"call", &Decoder::DecodeCall},
        {"ret", &Decoder::DecodeEnd},
        {"exit", &Decoder::DecodeEnd},
        {"trap", &Decoder::DecodeEnd},
        {"bar", &Decoder::DecodeBarrier},
        {"barrier", &Decoder::DecodeBarrier},
        {"membar", &Decoder::DecodeFence},
        {"fence", &Decoder::DecodeFence},
        {"shfl", &Decoder::DecodeShuffle},
        {"vote", &Decoder::DecodeVote},
        {"redux", &Decoder::DecodeReduce},
        {"activemask", &Decoder::DecodeActiveMask},
    };
    const auto found = methods.find(statement_->opcode);
    if (found == methods.end()) {
      Refuse("the opcode is not known");
      return;
    }
    index_ = index;
    (this->*found->second)();
  }

  // .ftz, .approx, .sat and the rounding of float arithmetic. Sets run and
  // inner.
  void DecodeFloatModifiers(Modifiers& modifiers, Type type, Handler handler) {
    op_.op_class =
        op_.op_class == OpClass::kDivide ? OpClass::kDivide
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

  static OpClass IntegerClass(Type type) {
    return SizeBytes(type) == 8 ? OpClass::kInteger64 : OpClass::kInteger;
  }

  void DecodeAddSub() {
    Modifiers modifiers(statement_->modifiers);
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

  static Type WiderType(Type type) {
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

  void DecodeMul() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    if (IsFloat(type)) {
      DecodeFloatModifiers(modifiers, type,
                           BinaryHandler(BinaryOp::kMul, type));
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

  void DecodeMad() {
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

  void DecodeFma() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    if (!context_.options.allow_fma) Refuse("fma is not allowed");
    DecodeFloatModifiers(modifiers, type,
                         TernaryHandler(TernaryOp::kFma, type));
    FourOperands(type, type, type, type);
    Finish(modifiers);
  }

  void DecodeDiv() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    op_.op_class = OpClass::kDivide;
    op_.run = BinaryHandler(BinaryOp::kDiv, type);
    if (IsFloat(type)) DecodeFloatModifiers(modifiers, type, op_.run);
    ThreeOperands(type, type, type);
    Finish(modifiers);
  }

  void DecodeRem() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    op_.op_class = OpClass::kDivide;
    op_.run = BinaryHandler(BinaryOp::kRem, type);
    ThreeOperands(type, type, type);
    Finish(modifiers);
  }

  void DecodeMinMax() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    const bool is_max = statement_->opcode == "max";
    if (IsFloat(type)) {
      const bool keeps_nan = modifiers.Take("NaN");
      DecodeFloatModifiers(
          modifiers, type,
          BinaryHandler(is_max ? (keeps_nan ? BinaryOp::kMaxNan
                                            : BinaryOp::kMax)
                               : (keeps_nan ? BinaryOp::kMinNan
                                            : BinaryOp::kMin),
                        type));
    } else {
      op_.op_class = IntegerClass(type);
      op_.run = BinaryHandler(is_max ? BinaryOp::kMax : BinaryOp::kMin, type);
    }
    ThreeOperands(type, type, type);
    Finish(modifiers);
  }

  void DecodeLogic() {
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
    op_.op_class =
        type == Type::kPred ? OpClass::kCompare : IntegerClass(type);
    Finish(modifiers);
  }

  void DecodeShift() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    op_.op_class = IntegerClass(type);
    op_.run = BinaryHandler(
        statement_->opcode == "shl" ? BinaryOp::kShl : BinaryOp::kShr, type);
    ThreeOperands(type, type, Type::kU32);
    Finish(modifiers);
  }

  void DecodeFunnelShift() {
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

  void DecodeSign() {
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

  void DecodeRoot() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    op_.op_class = OpClass::kDivide;
    DecodeFloatModifiers(
        modifiers, type,
        UnaryHandler(
            statement_->opcode == "sqrt" ? UnaryOp::kSqrt : UnaryOp::kRcp,
            type));
    if (!ExpectOperands(2)) return;
    op_.d = Destination(statement_->operands[0], type);
    op_.a = Source(statement_->operands[1], type);
    Finish(modifiers);
  }

  void DecodeBits() {
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

  void DecodeBitField() {
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

  void DecodePermute() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    op_.op_class = OpClass::kInteger;
    op_.run = &RunPermute;
    FourOperands(type, type, type, type);
    Finish(modifiers);
  }

  void DecodeLop3() {
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

  void DecodeCompare() {
    using enum Comparison;
    constexpr std::pair<absl::string_view, Comparison> kNames[] = {
        {"eq", kEq},   {"ne", kNe},   {"lt", kLt},   {"le", kLe},
        {"gt", kGt},   {"ge", kGe},   {"lo", kLt},   {"ls", kLe},
        {"hi", kGt},   {"hs", kGe},   {"equ", kEqu}, {"neu", kNeu},
        {"ltu", kLtu}, {"leu", kLeu}, {"gtu", kGtu}, {"geu", kGeu},
        {"num", kNum}, {"nan", kNan}};
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

  void DecodeSelect() {
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

  void DecodeConvert() {
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
      op_.immediate = rounding == Rounding::kZero  ? FE_TOWARDZERO
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

  // Address of a variable in its space.
  bool VariableAddress(const Operand& operand, Space* space, int64_t* address,
                       int* area) {
    *area = -1;
    if (operand.is_of_module) {
      const Variable& variable = context_.module.variables[operand.index];
      *space = variable.space;
      *address = variable.offset_bytes + operand.value;
      if (variable.space != Space::kShared) {
        *address += static_cast<int64_t>(kModuleWindow);
      } else if (variable.size_bytes == 0) {
        op_.is_dynamic_shared = true;
      }
      return true;
    }
    const Variable& variable = function_.variables[operand.index];
    *space = variable.space;
    *address = offsets_of_variables_[operand.index] + operand.value;
    if (variable.space == Space::kLocal) op_.is_local_variable = true;
    if (variable.space == Space::kShared && variable.size_bytes == 0) {
      op_.is_dynamic_shared = true;
    }
    const int num_own = function_.num_returns + function_.num_parameters;
    if (variable.space == Space::kParam &&
        (!function_.is_entry || operand.index >= num_own)) {
      *area = operand.index;
      *address = operand.value;
    }
    return true;
  }

  void DecodeMove() {
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

  // "mov": a scalar and the registers that make it up, the low one first.
  void DecodePack(const std::vector<Operand>& parts, const Operand& whole,
                  Type type, Handler handler) {
    const int bytes = SizeBytes(type);
    const int part_bytes = parts.empty() ? 0 : bytes / static_cast<int>(
                                                           parts.size());
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

  // "cvta": the windows of the spaces in the generic one.
  void DecodeConvertAddress() {
    Modifiers modifiers(statement_->modifiers);
    const bool is_back = modifiers.Take("to");
    const Type type = NeedType(modifiers);
    if (SizeBytes(type) != 8) Refuse("only 64 bits are known");
    uint64_t window = 0;
    if (modifiers.Take("shared") || modifiers.Take("shared::cta")) {
      window = kSharedWindow;
    } else if (modifiers.Take("local")) {
      window = kLocalWindow;
    } else if (modifiers.Take("param") || modifiers.Take("param::entry")) {
      window = kParamWindow;
    } else if (!modifiers.Take("global") && !modifiers.Take("const")) {
      Fail("names no space");
    }
    op_.op_class = OpClass::kInteger64;
    op_.immediate = static_cast<int64_t>(is_back ? 0 - window : window);
    if (!ExpectOperands(2)) return;
    op_.d = Destination(statement_->operands[0], type);
    const Operand& a = statement_->operands[1];
    if (a.kind == Operand::Kind::kVariable) {
      Space space;
      int64_t address;
      int area;
      if (!VariableAddress(a, &space, &address, &area)) return;
      if (area >= 0) Refuse("the address of a parameter of a function");
      op_.immediate += address;
      op_.register_bytes = 8;
      op_.run = &RunMoveAddress;
    } else {
      op_.a = Source(a, type);
      op_.run = &RunConvertAddress;
    }
    Finish(modifiers);
  }

  // Space, caching, vector and type of ld and st; the address and the data.
  void DecodeAccess(Modifiers& modifiers, const Operand& address,
                    const Operand& data, bool is_load) {
    const Type type = NeedType(modifiers);
    op_.element_bytes = static_cast<uint8_t>(SizeBytes(type));
    op_.is_signed = IsSigned(type);
    op_.space = TakeSpace(modifiers);
    op_.num_elements = modifiers.Take("v2") ? 2 : modifiers.Take("v4") ? 4 : 1;
    // "Cache Operators", "Cache Eviction Priority Hints": speed alone.
    for (const absl::string_view name :
         {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "weak", "volatile"}) {
      modifiers.Take(name);
    }
    while (!modifiers.TakePrefix("L1::").empty() ||
           !modifiers.TakePrefix("L2::").empty()) {
    }
    const std::vector<Operand> scalar = {data};
    const std::vector<Operand>& parts =
        data.kind == Operand::Kind::kVector ? data.parts : scalar;
    if (parts.size() != op_.num_elements) {
      Fail("the vector and the data differ in length");
      return;
    }
    std::vector<OperandRef> refs;
    int bytes = 0;
    for (const Operand& part : parts) {
      if (part.kind == Operand::Kind::kRegister) bytes = BytesOf(part);
    }
    if (bytes == 0) bytes = RegisterBytes(type);
    for (const Operand& part : parts) {
      if (is_load && part.kind == Operand::Kind::kName && part.name == "_") {
        refs.push_back(kNoOperand);
      } else if (part.kind == Operand::Kind::kRegister) {
        refs.push_back(RegisterRef(part, bytes));
      } else if (!is_load) {
        refs.push_back(bytes == 2 && SizeBytes(type) == 1
                           ? Constant(Cut(static_cast<uint64_t>(part.value), 2),
                                      2)
                           : Source(part, type));
      } else {
        Fail("the destination is no register");
      }
    }
    op_.register_bytes = static_cast<uint8_t>(bytes);
    if (bytes < SizeBytes(type)) Fail("the register is narrower than the type");
    op_.side = static_cast<int32_t>(code_.vectors.size());
    code_.vectors.push_back(std::move(refs));
    op_.run = is_load ? &RunLoad : &RunStore;
    DecodeAddress(address);
    SetAccessClass(is_load);
  }

  Space TakeSpace(Modifiers& modifiers) {
    if (modifiers.Take("global")) return Space::kGlobal;
    if (modifiers.Take("shared") || modifiers.Take("shared::cta")) {
      return Space::kShared;
    }
    if (modifiers.Take("local")) return Space::kLocal;
    if (modifiers.Take("const")) return Space::kConst;
    if (modifiers.Take("param") || modifiers.Take("param::entry") ||
        modifiers.Take("param::func")) {
      return Space::kParam;
    }
    return Space::kGeneric;
  }

  void SetAccessClass(bool is_load) {
    switch (op_.space) {
      case Space::kShared:
        op_.op_class = is_load ? OpClass::kSharedLoad : OpClass::kSharedStore;
        break;
      case Space::kLocal:
        op_.op_class = is_load ? OpClass::kLocalLoad : OpClass::kLocalStore;
        break;
      case Space::kParam:
        op_.op_class = OpClass::kParamAccess;
        break;
      default:
        op_.op_class = is_load ? OpClass::kGlobalLoad : OpClass::kGlobalStore;
        break;
    }
  }

  void DecodeAddress(const Operand& address) {
    if (address.kind != Operand::Kind::kAddress) {
      Fail("has no address");
      return;
    }
    const Operand& base = address.parts[0];
    if (base.kind == Operand::Kind::kVariable) {
      Space space;
      int area;
      if (!VariableAddress(base, &space, &op_.immediate, &area)) return;
      op_.immediate += address.value;
      if (op_.space == Space::kGeneric) op_.space = space;
      if (op_.space != space &&
          !(op_.space == Space::kGlobal && space == Space::kConst)) {
        Fail("the variable is in another space");
        return;
      }
      if (area >= 0) {
        if (op_.immediate < 0 ||
            op_.immediate + op_.element_bytes * op_.num_elements >
                function_.variables[area].size_bytes) {
          Fail("beyond the parameter");
          return;
        }
        op_.run = op_.run == &RunLoad ? &RunLoadArea : &RunStoreArea;
        op_.e = code_.areas[area].frame_offset;
        op_.reconverge = code_.areas[area].lane_stride_bytes;
      }
    } else if (base.kind == Operand::Kind::kInteger) {
      op_.immediate = base.value + address.value;
    } else {
      const int bytes = BytesOf(base);
      if (bytes != 4 && bytes != 8) {
        Fail("the address is no register of 32 or 64 bits");
        return;
      }
      if (op_.space == Space::kParam && !function_.is_entry) {
        Refuse("the address of a parameter of a function");
        return;
      }
      op_.a = RegisterRef(base, bytes);
      op_.is_address_32 = bytes == 4;
      op_.immediate = address.value;
    }
  }

  void DecodeLoad() {
    Modifiers modifiers(statement_->modifiers);
    if (!ExpectOperands(2)) return;
    op_.is_read_only = modifiers.Take("nc");
    op_.target = -1;
    DecodeAccess(modifiers, statement_->operands[1], statement_->operands[0],
                 true);
    if (statement_->used_bytes_mask != ~uint64_t{0}) {
      op_.target = static_cast<int32_t>(code_.used_bytes_masks.size());
      code_.used_bytes_masks.push_back(statement_->used_bytes_mask);
    }
    Finish(modifiers);
  }

  void DecodeStore() {
    Modifiers modifiers(statement_->modifiers);
    if (!ExpectOperands(2)) return;
    DecodeAccess(modifiers, statement_->operands[0], statement_->operands[1],
                 false);
    Finish(modifiers);
  }

  void DecodeAtomic() {
    constexpr std::pair<absl::string_view, AtomicOp> kNames[] = {
        {"add", AtomicOp::kAdd},       {"min", AtomicOp::kMin},
        {"max", AtomicOp::kMax},       {"and", AtomicOp::kAnd},
        {"or", AtomicOp::kOr},         {"xor", AtomicOp::kXor},
        {"exch", AtomicOp::kExchange}, {"cas", AtomicOp::kCompareAndSwap},
        {"inc", AtomicOp::kIncrement}, {"dec", AtomicOp::kDecrement}};
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    op_.space = TakeSpace(modifiers);
    op_.op_class = OpClass::kAtomic;
    for (const auto& [name, atomic] : kNames) {
      if (!modifiers.Take(name)) continue;
      op_.variant = static_cast<uint8_t>(atomic);
      op_.run = AtomicHandler(atomic, type);
    }
    for (const absl::string_view name : {"relaxed", "cta", "gpu", "sys"}) {
      modifiers.Take(name);
    }
    const size_t first = statement_->opcode == "atom" ? 1 : 0;
    const bool is_cas =
        static_cast<AtomicOp>(op_.variant) == AtomicOp::kCompareAndSwap &&
        op_.run != nullptr;
    if (!ExpectOperands(first + (is_cas ? 3 : 2))) return;
    if (first == 1) op_.d = Destination(statement_->operands[0], type);
    op_.b = Source(statement_->operands[first + 1], type);
    if (is_cas) op_.c = Source(statement_->operands[first + 2], type);
    const Handler handler = op_.run;
    DecodeAddress(statement_->operands[first]);
    op_.run = handler;
    Finish(modifiers);
  }

  void DecodeBranch() {
    Modifiers modifiers(statement_->modifiers);
    modifiers.Take("uni");
    op_.kind = OpKind::kBranch;
    op_.op_class = OpClass::kBranch;
    op_.target = statement_->operands[0].index;
    op_.reconverge = flow_.blocks[flow_.block_of[index_]].reconverge;
    Finish(modifiers);
  }

  // "brx.idx".
  void DecodeBranchTable() {
    Modifiers modifiers(statement_->modifiers);
    modifiers.Take("uni");
    if (!modifiers.Take("idx")) Fail("needs .idx");
    op_.kind = OpKind::kBranchTable;
    op_.op_class = OpClass::kBranch;
    op_.a = Source(statement_->operands[0], Type::kU32);
    for (const BranchTable& table : function_.tables) {
      if (table.label != statement_->operands[1].name) continue;
      op_.side = static_cast<int32_t>(code_.tables.size());
      code_.tables.push_back(table.targets);
    }
    op_.reconverge = flow_.blocks[flow_.block_of[index_]].reconverge;
    Finish(modifiers);
  }

  // "call": direct, with parameters in .param space.
  void DecodeCall() {
    Modifiers modifiers(statement_->modifiers);
    modifiers.Take("uni");
    op_.kind = OpKind::kCall;
    op_.op_class = OpClass::kBranch;
    const std::vector<Operand>& operands = statement_->operands;
    size_t at = 0;
    CallPlan plan;
    if (at < operands.size() &&
        operands[at].kind == Operand::Kind::kVector) {
      AddAreas(operands[at++].parts, &plan.results);
    }
    if (at >= operands.size() || operands[at].kind != Operand::Kind::kName) {
      Refuse("only direct calls are known");
      return;
    }
    const auto found = context_.functions.find(operands[at].name);
    if (found == context_.functions.end()) {
      Fail(absl::StrCat("there is no function ", operands[at].name));
      return;
    }
    op_.target = found->second;
    ++at;
    if (at < operands.size()) AddAreas(operands[at].parts, &plan.arguments);
    op_.side = static_cast<int32_t>(code_.calls.size());
    code_.calls.push_back(std::move(plan));
    Finish(modifiers);
  }

  void AddAreas(const std::vector<Operand>& operands,
                std::vector<uint32_t>* areas) {
    for (const Operand& operand : operands) {
      if (operand.kind != Operand::Kind::kVariable || operand.is_of_module ||
          function_.variables[operand.index].space != Space::kParam ||
          code_.areas[operand.index].frame_offset == 0) {
        Refuse("arguments that are no .param variables");
        return;
      }
      areas->push_back(static_cast<uint32_t>(operand.index));
    }
  }

  void DecodeEnd() {
    Modifiers modifiers(statement_->modifiers);
    modifiers.Take("uni");
    op_.kind = statement_->opcode == "ret"    ? OpKind::kReturn
               : statement_->opcode == "exit" ? OpKind::kExit
                                              : OpKind::kTrap;
    op_.op_class = OpClass::kBranch;
    Finish(modifiers);
  }

  // "bar", "barrier", "bar.warp.sync".
  void DecodeBarrier() {
    Modifiers modifiers(statement_->modifiers);
    op_.op_class = OpClass::kBarrier;
    if (modifiers.Take("warp")) {
      modifiers.Take("sync");
      op_.run = &RunWarpSync;
      if (!ExpectOperands(1)) return;
      op_.b = Source(statement_->operands[0], Type::kB32);
      Finish(modifiers);
      return;
    }
    op_.kind = OpKind::kBarrier;
    modifiers.Take("cta");
    if (!modifiers.Take("sync")) Refuse("only .sync is known");
    modifiers.Take("aligned");
    if (!ExpectOperands(1)) return;
    if (statement_->operands[0].kind != Operand::Kind::kInteger ||
        statement_->operands[0].value < 0 ||
        statement_->operands[0].value > 15) {
      Refuse("only barriers 0 to 15 of all threads are known");
      return;
    }
    op_.immediate = statement_->operands[0].value;
    Finish(modifiers);
  }

  // Memory is sequentially consistent here: a fence changes nothing, and orders
  // nothing for the race check.
  void DecodeFence() {
    op_.op_class = OpClass::kOther;
    op_.run = [](WarpState&, const MicroOp&, uint32_t) { return true; };
  }

  void DecodeShuffle() {
    Modifiers modifiers(statement_->modifiers);
    NeedType(modifiers);
    if (!modifiers.Take("sync")) Fail("needs .sync");
    constexpr std::pair<absl::string_view, ShuffleMode> kModes[] = {
        {"up", ShuffleMode::kUp},
        {"down", ShuffleMode::kDown},
        {"bfly", ShuffleMode::kButterfly},
        {"idx", ShuffleMode::kIndex}};
    for (const auto& [name, mode] : kModes) {
      if (modifiers.Take(name)) op_.variant = static_cast<uint8_t>(mode);
    }
    op_.op_class = OpClass::kExchange;
    op_.run = &RunShuffle;
    if (!ExpectOperands(5)) return;
    const Operand& to = statement_->operands[0];
    if (to.kind == Operand::Kind::kPair) {
      op_.d = RegisterRef(to.parts[0], 4);
      op_.e = RegisterRef(to.parts[1], 0);
    } else {
      op_.d = RegisterRef(to, 4);
    }
    op_.a = Source(statement_->operands[1], Type::kB32);
    op_.b = Source(statement_->operands[2], Type::kB32);
    op_.c = Source(statement_->operands[3], Type::kB32);
    op_.target =
        static_cast<int32_t>(Source(statement_->operands[4], Type::kB32));
    Finish(modifiers);
  }

  void DecodeVote() {
    Modifiers modifiers(statement_->modifiers);
    NeedType(modifiers);
    if (!modifiers.Take("sync")) Fail("needs .sync");
    constexpr std::pair<absl::string_view, VoteMode> kModes[] = {
        {"all", VoteMode::kAll},
        {"any", VoteMode::kAny},
        {"uni", VoteMode::kUniform},
        {"ballot", VoteMode::kBallot}};
    for (const auto& [name, mode] : kModes) {
      if (modifiers.Take(name)) op_.variant = static_cast<uint8_t>(mode);
    }
    op_.op_class = OpClass::kExchange;
    op_.run = &RunVote;
    if (!ExpectOperands(3)) return;
    op_.d = RegisterRef(
        statement_->operands[0],
        static_cast<VoteMode>(op_.variant) == VoteMode::kBallot ? 4 : 0);
    op_.a = PredicateSource(statement_->operands[1], &op_.is_signed);
    op_.b = Source(statement_->operands[2], Type::kB32);
    Finish(modifiers);
  }

  void DecodeReduce() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    if (!modifiers.Take("sync")) Fail("needs .sync");
    constexpr std::pair<absl::string_view, BinaryOp> kOps[] = {
        {"add", BinaryOp::kAdd}, {"min", BinaryOp::kMin},
        {"max", BinaryOp::kMax}, {"and", BinaryOp::kAnd},
        {"or", BinaryOp::kOr},   {"xor", BinaryOp::kXor}};
    for (const auto& [name, op] : kOps) {
      if (modifiers.Take(name)) op_.variant = static_cast<uint8_t>(op);
    }
    op_.op_class = OpClass::kExchange;
    op_.is_signed = IsSigned(type);
    op_.run = SizeBytes(type) == 4 && !IsFloat(type) ? &RunReduce : nullptr;
    ThreeOperands(type, type, Type::kB32);
    Finish(modifiers);
  }

  void DecodeActiveMask() {
    Modifiers modifiers(statement_->modifiers);
    const Type type = NeedType(modifiers);
    op_.op_class = OpClass::kExchange;
    op_.run = &RunActiveMask;
    if (!ExpectOperands(1)) return;
    op_.d = Destination(statement_->operands[0], type);
    Finish(modifiers);
  }

  const FunctionSyntax& function_;
  const DecodeContext& context_;
  Flow flow_;
  FunctionCode code_;
  std::vector<uint32_t> offsets_;  // by register
  std::vector<uint32_t> tracked_;  // by register; 0: not tracked
  std::vector<int64_t> offsets_of_variables_;
  std::map<std::pair<int, uint64_t>, OperandRef> constants_;
  const Statement* statement_ = nullptr;
  int index_ = 0;
  MicroOp op_;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<FunctionCode> DecodeFunction(const FunctionSyntax& function,
                                            const DecodeContext& context) {
  return Decoder(function, context).Run();
}

}  // namespace datasetd::emulated_gpu
