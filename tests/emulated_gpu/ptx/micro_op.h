// Functions in the form in which they run: operands are offsets in a frame of
// registers or in the function's constants, and each instruction has the
// function that executes it for the 32 lanes of a warp.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_MICRO_OP_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_MICRO_OP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/emulated_gpu/ptx/op_class.h"
#include "tests/emulated_gpu/ptx/syntax.h"

namespace datasetd::emulated_gpu {

inline constexpr int kWarpLanes = 32;
inline constexpr uint32_t kAllLanes = ~uint32_t{0};

struct WarpState;
struct MicroOp;

// Executes `op` for the lanes of `mask`; false after a fault, which is in the
// state.
using Handler = bool (*)(WarpState& warp, const MicroOp& op, uint32_t mask);

// Bit 31 set: in the constants; else in the frame.
using OperandRef = uint32_t;
inline constexpr OperandRef kConstantBank = uint32_t{1} << 31;
inline constexpr OperandRef kNoOperand = ~uint32_t{0};

enum class OpKind : uint8_t {
  kCompute,  // MicroOp::run does it
  kBranch,
  kBranchTable,
  kCall,
  kReturn,
  kExit,
  kTrap,
  kBarrier,
  kEnd,  // behind the last statement: an implicit ret
};

// Generic addresses of the spaces that are no device memory; their bits 56..63
// tell them apart. PTX ISA, "Generic Addressing".
inline constexpr int kWindowShift = 56;
inline constexpr uint64_t kSharedWindow = uint64_t{1} << kWindowShift;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << kWindowShift;
inline constexpr uint64_t kParamWindow = uint64_t{3} << kWindowShift;
inline constexpr uint64_t kModuleWindow = uint64_t{4} << kWindowShift;

struct MicroOp {
  Handler run = nullptr;
  OpKind kind = OpKind::kCompute;
  OpClass op_class = OpClass::kOther;
  bool is_predicate_negated = false;
  // For memory operations.
  Space space = Space::kGeneric;
  uint8_t element_bytes = 0;   // in memory
  uint8_t register_bytes = 0;  // of the data registers
  uint8_t num_elements = 1;
  bool is_signed = false;
  bool is_read_only = false;       // ld.global.nc
  bool is_address_32 = false;      // the base register has 32 bits
  bool is_local_variable = false;  // add the frame's place in local memory
  bool is_dynamic_shared = false;  // add the bytes of static shared memory
  uint8_t variant = 0;             // of the handler's own
  OperandRef predicate = kNoOperand;
  OperandRef d = kNoOperand;
  OperandRef a = kNoOperand;
  OperandRef b = kNoOperand;
  OperandRef c = kNoOperand;
  OperandRef e = kNoOperand;  // a second destination, or a fourth source
  Handler inner = nullptr;    // of a handler that wraps another
  int64_t immediate = 0;
  int32_t target = 0;  // of a branch; of a call: the function
  int32_t reconverge = -1;
  int32_t side = -1;     // in vectors, calls, tables: what the kind needs
  int32_t tracked = -1;  // in tracked
};

// Registers that may be read before they are written have a word each in the
// frame, of the lanes in which they are written.
struct TrackedRead {
  uint32_t offset = 0;  // of the word
  int reg = 0;          // to name it
  bool is_guard = false;
};

struct TrackedOperands {
  std::vector<TrackedRead> reads;
  std::vector<uint32_t> writes;  // offsets of the words
  bool is_copy = false;          // mov, selp: what is unwritten stays so
};

// An array of parameters: one for all threads, or one a lane.
struct ParameterArea {
  uint32_t frame_offset = 0;
  int32_t lane_stride_bytes = 0;
};

struct CallPlan {
  // Variables of the caller, in order: indices in areas.
  std::vector<uint32_t> arguments;
  std::vector<uint32_t> results;
};

struct FunctionCode {
  std::string name;
  bool is_entry = false;
  int max_threads = 0;
  std::vector<Variable> parameters;  // names are owned by name_storage
  std::vector<Variable> returns;
  std::vector<std::string> name_storage;
  int64_t parameter_bytes = 0;
  int64_t local_bytes = 0;
  int64_t static_shared_bytes = 0;  // of this function's own variables

  std::vector<MicroOp> ops;    // the last is kEnd
  std::vector<int> lines;      // of the PTX, by op
  std::vector<int> locations;  // by op
  std::vector<uint8_t> constants;
  std::vector<std::vector<OperandRef>> vectors;
  std::vector<uint64_t> used_bytes_masks;  // by side of loads that have one
  std::vector<TrackedOperands> tracked;
  std::vector<CallPlan> calls;
  std::vector<std::vector<int>> tables;
  std::vector<std::string> register_names;

  uint32_t frame_bytes = 0;
  uint32_t tracked_offset = 0;
  uint32_t tracked_bytes = 0;
  // By variable of the syntax: areas of .param variables.
  std::vector<ParameterArea> areas;
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_MICRO_OP_H_
