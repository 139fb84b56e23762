#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/emulated_gpu/ptx/frame.h"
#include "tests/emulated_gpu/ptx/function_decoder.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

OperandRef FunctionDecoder::Constant(uint64_t value, int bytes) {
  const auto [found, is_new] = constants_.try_emplace({bytes, value}, 0);
  if (!is_new) return found->second;
  const int lane_bytes = bytes == 0 ? 4 : bytes;
  const int count = bytes == 0 ? 1 : kWarpLanes;
  size_t at = code_.constants.size();
  code_.constants.resize(at +
                         static_cast<size_t>(std::max(64, lane_bytes * count)));
  found->second = static_cast<OperandRef>(at) | kConstantBank;
  for (int i = 0; i < count; ++i, at += lane_bytes) {
    std::memcpy(&code_.constants[at], &value, lane_bytes);
  }
  return found->second;
}

OperandRef FunctionDecoder::RegisterRef(const Operand& operand, int bytes) {
  if (operand.kind != Operand::Kind::kRegister) {
    Fail("an operand is no register");
    return 0;
  }
  const int has = RegisterBytes(function_.registers[operand.index].type);
  if (has != bytes) {
    Fail(absl::StrCat("register ", code_.register_names[operand.index], " has ",
                      has * 8, " bits, the instruction ", bytes * 8));
  }
  return offsets_[operand.index];
}

int FunctionDecoder::BytesOf(const Operand& operand) const {
  return operand.kind == Operand::Kind::kRegister
             ? RegisterBytes(function_.registers[operand.index].type)
             : 0;
}

OperandRef FunctionDecoder::Destination(const Operand& operand, Type type) {
  return RegisterRef(operand, RegisterBytes(type));
}

OperandRef FunctionDecoder::Source(const Operand& operand, Type type) {
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
      return Constant(Cut(static_cast<uint64_t>(operand.value), bytes), bytes);
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

OperandRef FunctionDecoder::PredicateSource(const Operand& operand,
                                            bool* is_negated) {
  *is_negated = operand.is_negated;
  if (operand.kind == Operand::Kind::kInteger) {
    return Source(operand, Type::kPred);
  }
  return RegisterRef(operand, 0);
}

void FunctionDecoder::ThreeOperands(Type d, Type a, Type b) {
  if (!ExpectOperands(3)) return;
  op_.d = Destination(statement_->operands[0], d);
  op_.a = Source(statement_->operands[1], a);
  op_.b = Source(statement_->operands[2], b);
}

void FunctionDecoder::FourOperands(Type d, Type a, Type b, Type c) {
  if (!ExpectOperands(4)) return;
  op_.d = Destination(statement_->operands[0], d);
  op_.a = Source(statement_->operands[1], a);
  op_.b = Source(statement_->operands[2], b);
  op_.c = Source(statement_->operands[3], c);
}

bool FunctionDecoder::VariableAddress(const Operand& operand, Space* space,
                                      int64_t* address, int* area) {
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

}  // namespace datasetd::emulated_gpu
