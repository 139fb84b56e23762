#include "tests/emulated_gpu/ptx/decoder.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/flow.h"
#include "tests/emulated_gpu/ptx/frame.h"
#include "tests/emulated_gpu/ptx/function_decoder.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/modifiers.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

absl::StatusOr<FunctionCode> FunctionDecoder::Run() {
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

void FunctionDecoder::PlaceFrame() {
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

void FunctionDecoder::PlaceVariables() {
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
      code_.frame_bytes +=
          static_cast<uint32_t>(AlignUp(variable.size_bytes * kWarpLanes, 64));
    }
    offsets_of_variables_[i] = offset;
    if (i >= num_own) continue;
    Variable own = variable;
    std::vector<Variable>& group =
        i < function_.num_returns ? code_.returns : code_.parameters;
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

void FunctionDecoder::Refuse(absl::string_view what) {
  if (!error_.ok()) return;
  error_ = absl::UnimplementedError(
      absl::StrCat("line ", statement_->line, ": ", Name(), ": ", what));
}

void FunctionDecoder::Fail(absl::string_view what) {
  if (!error_.ok()) return;
  error_ = absl::InvalidArgumentError(
      absl::StrCat("line ", statement_->line, ": ", Name(), ": ", what));
}

std::string FunctionDecoder::Name() const {
  std::string name(statement_->opcode);
  for (const absl::string_view modifier : statement_->modifiers) {
    absl::StrAppend(&name, ".", modifier);
  }
  return name;
}

bool FunctionDecoder::ExpectOperands(size_t count) {
  if (statement_->operands.size() == count) return true;
  Fail(absl::StrCat("has ", statement_->operands.size(), " operands, not ",
                    count));
  return false;
}

void FunctionDecoder::Finish(const Modifiers& modifiers) {
  if (!modifiers.left().empty()) {
    Refuse(absl::StrCat("modifier .", modifiers.left()[0], " is not known"));
  }
  if (op_.kind == OpKind::kCompute && op_.run == nullptr) {
    Refuse("there is no such instruction for this type");
  }
}

Type FunctionDecoder::NeedType(Modifiers& modifiers) {
  const std::optional<Type> type = modifiers.TakeType();
  if (!type.has_value()) Fail("has no type");
  return type.value_or(Type::kB32);
}

void FunctionDecoder::Track() {
  const Accesses accesses = FindAccesses(*statement_);
  TrackedOperands tracked;
  for (const int reg : accesses.reads) {
    if (tracked_[reg] == 0) continue;
    tracked.reads.push_back({tracked_[reg], reg, reg == statement_->predicate});
  }
  for (const int reg : accesses.writes) {
    if (tracked_[reg] != 0) tracked.writes.push_back(tracked_[reg]);
  }
  if (tracked.reads.empty() && tracked.writes.empty()) return;
  tracked.is_copy = statement_->opcode == "mov" || statement_->opcode == "selp";
  op_.tracked = static_cast<int32_t>(code_.tracked.size());
  code_.tracked.push_back(std::move(tracked));
}

void FunctionDecoder::Decode(int index) {
  if (statement_->predicate >= 0) {
    op_.predicate = offsets_[statement_->predicate];
    op_.is_predicate_negated = statement_->is_predicate_negated;
    if (function_.registers[statement_->predicate].type != Type::kPred) {
      Fail("the guard is no predicate");
      return;
    }
  }
  using Method = void (FunctionDecoder::*)();
  static const auto& methods = *new std::map<absl::string_view, Method>{
      {"add", &FunctionDecoder::DecodeAddSub},
      {"sub", &FunctionDecoder::DecodeAddSub},
      {"addc", &FunctionDecoder::DecodeCarry},
      {"subc", &FunctionDecoder::DecodeCarry},
      {"mul", &FunctionDecoder::DecodeMul},
      {"mad", &FunctionDecoder::DecodeMad},
      {"fma", &FunctionDecoder::DecodeFma},
      {"div", &FunctionDecoder::DecodeDiv},
      {"rem", &FunctionDecoder::DecodeRem},
      {"min", &FunctionDecoder::DecodeMinMax},
      {"max", &FunctionDecoder::DecodeMinMax},
      {"and", &FunctionDecoder::DecodeLogic},
      {"or", &FunctionDecoder::DecodeLogic},
      {"xor", &FunctionDecoder::DecodeLogic},
      {"not", &FunctionDecoder::DecodeLogic},
      {"cnot", &FunctionDecoder::DecodeLogic},
      {"shl", &FunctionDecoder::DecodeShift},
      {"shr", &FunctionDecoder::DecodeShift},
      {"shf", &FunctionDecoder::DecodeFunnelShift},
      {"neg", &FunctionDecoder::DecodeSign},
      {"abs", &FunctionDecoder::DecodeSign},
      {"sqrt", &FunctionDecoder::DecodeRoot},
      {"rcp", &FunctionDecoder::DecodeRoot},
      {"popc", &FunctionDecoder::DecodeBits},
      {"clz", &FunctionDecoder::DecodeBits},
      {"brev", &FunctionDecoder::DecodeBits},
      {"bfe", &FunctionDecoder::DecodeBitField},
      {"bfi", &FunctionDecoder::DecodeBitField},
      {"prmt", &FunctionDecoder::DecodePermute},
      {"lop3", &FunctionDecoder::DecodeLop3},
      {"setp", &FunctionDecoder::DecodeCompare},
      {"selp", &FunctionDecoder::DecodeSelect},
      {"cvt", &FunctionDecoder::DecodeConvert},
      {"mov", &FunctionDecoder::DecodeMove},
      {"cvta", &FunctionDecoder::DecodeConvertAddress},
      {"ld", &FunctionDecoder::DecodeLoad},
      {"st", &FunctionDecoder::DecodeStore},
      {"atom", &FunctionDecoder::DecodeAtomic},
      {"red", &FunctionDecoder::DecodeAtomic},
      {"bra", &FunctionDecoder::DecodeBranch},
      {"brx", &FunctionDecoder::DecodeBranchTable},
      {"call", &FunctionDecoder::DecodeCall},
      {"ret", &FunctionDecoder::DecodeEnd},
      {"exit", &FunctionDecoder::DecodeEnd},
      {"trap", &FunctionDecoder::DecodeEnd},
      {"bar", &FunctionDecoder::DecodeBarrier},
      {"barrier", &FunctionDecoder::DecodeBarrier},
      {"membar", &FunctionDecoder::DecodeFence},
      {"fence", &FunctionDecoder::DecodeFence},
      {"shfl", &FunctionDecoder::DecodeShuffle},
      {"vote", &FunctionDecoder::DecodeVote},
      {"redux", &FunctionDecoder::DecodeReduce},
      {"activemask", &FunctionDecoder::DecodeActiveMask},
  };
  const auto found = methods.find(statement_->opcode);
  if (found == methods.end()) {
    Refuse("the opcode is not known");
    return;
  }
  index_ = index;
  (this->*found->second)();
}

absl::StatusOr<FunctionCode> DecodeFunction(const FunctionSyntax& function,
                                            const DecodeContext& context) {
  return FunctionDecoder(function, context).Run();
}

}  // namespace datasetd::emulated_gpu
