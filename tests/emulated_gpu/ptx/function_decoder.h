// The decoder of one function: DecodeFunction() is what others call. Its
// methods are apart by the kind of instruction.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_FUNCTION_DECODER_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_FUNCTION_DECODER_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/decoder.h"
#include "tests/emulated_gpu/ptx/flow.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/modifiers.h"
#include "tests/emulated_gpu/ptx/op_class.h"
#include "tests/emulated_gpu/ptx/syntax.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

class FunctionDecoder {
 public:
  FunctionDecoder(const FunctionSyntax& function, const DecodeContext& context)
      : function_(function), context_(context) {}

  absl::StatusOr<FunctionCode> Run();

 private:
  void PlaceFrame();
  void PlaceVariables();
  void Refuse(absl::string_view what);
  void Fail(absl::string_view what);
  std::string Name() const;
  bool ExpectOperands(size_t count);
  void Finish(const Modifiers& modifiers);
  Type NeedType(Modifiers& modifiers);
  void Track();
  void Decode(int index);

  // decode_operands.cc.
  OperandRef Constant(uint64_t value, int bytes);
  OperandRef RegisterRef(const Operand& operand, int bytes);
  int BytesOf(const Operand& operand) const;
  OperandRef Destination(const Operand& operand, Type type);
  // A register or a constant of `type`. PTX ISA, "Constants".
  OperandRef Source(const Operand& operand, Type type);
  static uint64_t Cut(uint64_t value, int bytes) {
    return bytes == 8 ? value : value & ((uint64_t{1} << (8 * bytes)) - 1);
  }
  OperandRef PredicateSource(const Operand& operand, bool* is_negated);
  void ThreeOperands(Type d, Type a, Type b);
  void FourOperands(Type d, Type a, Type b, Type c);
  // Address of a variable in its space.
  bool VariableAddress(const Operand& operand, Space* space, int64_t* address,
                       int* area);

  // decode_arithmetic.cc.
  // .ftz, .approx, .sat and the rounding of float arithmetic. Sets run and
  // inner.
  void DecodeFloatModifiers(Modifiers& modifiers, Type type, Handler handler);
  static OpClass IntegerClass(Type type) {
    return SizeBytes(type) == 8 ? OpClass::kInteger64 : OpClass::kInteger;
  }
  void DecodeAddSub();
  // "addc", "subc", and "add.cc" and "sub.cc".
  void DecodeCarry();
  static Type WiderType(Type type);
  void DecodeMul();
  void DecodeMad();
  void DecodeFma();
  void DecodeDiv();
  void DecodeRem();
  void DecodeMinMax();
  void DecodeSign();
  void DecodeRoot();

  // decode_bits.cc.
  void DecodeLogic();
  void DecodeShift();
  void DecodeFunnelShift();
  void DecodeBits();
  void DecodeBitField();
  void DecodePermute();
  void DecodeLop3();

  // decode_values.cc.
  void DecodeCompare();
  void DecodeSelect();
  void DecodeConvert();
  void DecodeMove();
  // "mov": a scalar and the registers that make it up, the low one first.
  void DecodePack(const std::vector<Operand>& parts, const Operand& whole,
                  Type type, Handler handler);

  // decode_memory.cc.
  // "cvta": the windows of the spaces in the generic one.
  void DecodeConvertAddress();
  // Space, caching, vector and type of ld and st; the address and the data.
  void DecodeAccess(Modifiers& modifiers, const Operand& address,
                    const Operand& data, bool is_load);
  Space TakeSpace(Modifiers& modifiers);
  void SetAccessClass(bool is_load);
  void DecodeAddress(const Operand& address);
  void DecodeLoad();
  void DecodeStore();
  void DecodeAtomic();

  // decode_control.cc.
  void DecodeBranch();
  // "brx.idx".
  void DecodeBranchTable();
  // "call": direct, with parameters in .param space.
  void DecodeCall();
  void AddAreas(const std::vector<Operand>& operands,
                std::vector<uint32_t>* areas);
  void DecodeEnd();
  // "bar", "barrier", "bar.warp.sync".
  void DecodeBarrier();
  // Memory is sequentially consistent here: a fence changes nothing, and orders
  // nothing for the race check.
  void DecodeFence();

  // decode_exchange.cc.
  void DecodeShuffle();
  void DecodeVote();
  void DecodeReduce();
  void DecodeActiveMask();

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

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_FUNCTION_DECODER_H_
