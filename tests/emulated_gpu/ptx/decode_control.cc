#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/emulated_gpu/ptx/exchange.h"
#include "tests/emulated_gpu/ptx/flow.h"
#include "tests/emulated_gpu/ptx/function_decoder.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/modifiers.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

void FunctionDecoder::DecodeBranch() {
  Modifiers modifiers(statement_->modifiers);
  modifiers.Take("uni");
  op_.kind = OpKind::kBranch;
  op_.op_class = OpClass::kBranch;
  op_.target = statement_->operands[0].index;
  op_.reconverge = flow_.blocks[flow_.block_of[index_]].reconverge;
  Finish(modifiers);
}

void FunctionDecoder::DecodeBranchTable() {
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

void FunctionDecoder::DecodeCall() {
  Modifiers modifiers(statement_->modifiers);
  modifiers.Take("uni");
  op_.kind = OpKind::kCall;
  op_.op_class = OpClass::kBranch;
  const std::vector<Operand>& operands = statement_->operands;
  size_t at = 0;
  CallPlan plan;
  if (at < operands.size() && operands[at].kind == Operand::Kind::kVector) {
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

void FunctionDecoder::AddAreas(const std::vector<Operand>& operands,
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

void FunctionDecoder::DecodeEnd() {
  Modifiers modifiers(statement_->modifiers);
  modifiers.Take("uni");
  op_.kind = statement_->opcode == "ret"    ? OpKind::kReturn
             : statement_->opcode == "exit" ? OpKind::kExit
                                            : OpKind::kTrap;
  op_.op_class = OpClass::kBranch;
  Finish(modifiers);
}

void FunctionDecoder::DecodeBarrier() {
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
      statement_->operands[0].value < 0 || statement_->operands[0].value > 15) {
    Refuse("only barriers 0 to 15 of all threads are known");
    return;
  }
  op_.immediate = statement_->operands[0].value;
  Finish(modifiers);
}

void FunctionDecoder::DecodeFence() {
  op_.op_class = OpClass::kOther;
  op_.run = [](WarpState&, const MicroOp&, uint32_t) { return true; };
}

}  // namespace datasetd::emulated_gpu
