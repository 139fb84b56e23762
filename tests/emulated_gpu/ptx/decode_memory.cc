#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/frame.h"
#include "tests/emulated_gpu/ptx/function_decoder.h"
#include "tests/emulated_gpu/ptx/memory.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/modifiers.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

void FunctionDecoder::DecodeConvertAddress() {
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

void FunctionDecoder::DecodeAccess(Modifiers& modifiers, const Operand& address,
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
      refs.push_back(
          bytes == 2 && SizeBytes(type) == 1
              ? Constant(Cut(static_cast<uint64_t>(part.value), 2), 2)
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

Space FunctionDecoder::TakeSpace(Modifiers& modifiers) {
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

void FunctionDecoder::SetAccessClass(bool is_load) {
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

void FunctionDecoder::DecodeAddress(const Operand& address) {
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

void FunctionDecoder::DecodeLoad() {
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

void FunctionDecoder::DecodeStore() {
  Modifiers modifiers(statement_->modifiers);
  if (!ExpectOperands(2)) return;
  DecodeAccess(modifiers, statement_->operands[0], statement_->operands[1],
               false);
  Finish(modifiers);
}

void FunctionDecoder::DecodeAtomic() {
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

}  // namespace datasetd::emulated_gpu
