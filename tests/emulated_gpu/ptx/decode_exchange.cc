#include <cstdint>
#include <utility>

#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/arithmetic.h"
#include "tests/emulated_gpu/ptx/exchange.h"
#include "tests/emulated_gpu/ptx/function_decoder.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/modifiers.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

void FunctionDecoder::DecodeShuffle() {
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

void FunctionDecoder::DecodeVote() {
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

void FunctionDecoder::DecodeReduce() {
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

void FunctionDecoder::DecodeActiveMask() {
  Modifiers modifiers(statement_->modifiers);
  const Type type = NeedType(modifiers);
  op_.op_class = OpClass::kExchange;
  op_.run = &RunActiveMask;
  if (!ExpectOperands(1)) return;
  op_.d = Destination(statement_->operands[0], type);
  Finish(modifiers);
}

}  // namespace datasetd::emulated_gpu
