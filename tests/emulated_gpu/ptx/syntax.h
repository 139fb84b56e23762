// PTX as the parser reads it, with names resolved to registers, variables and
// statements, and no meaning given to opcodes. Text is a view into the source.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_SYNTAX_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_SYNTAX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

enum class Space : uint8_t {
  kGeneric,
  kGlobal,
  kConst,
  kShared,
  kLocal,
  kParam,
};

// A variable, or a parameter. PTX ISA, "State Spaces, Types, and Variables".
struct Variable {
  absl::string_view name;
  Space space = Space::kGlobal;
  Type type = Type::kB8;
  int64_t size_bytes = 0;
  int64_t alignment = 1;
  // In its space: of the function for kLocal, kShared and kParam, of the
  // module else.
  int64_t offset_bytes = 0;
  std::vector<uint8_t> initial;  // empty: none
};

// A register of a function.
struct Register {
  absl::string_view name;  // without the number for %r<n>
  int number = -1;
  Type type = Type::kB32;
};

struct Operand {
  enum class Kind {
    kRegister,  // index
    kInteger,   // value
    kFloat,     // value: its bits
    kVariable,  // index in the function's or module's variables, value: offset
    kAddress,   // parts[0]: register, variable or integer; value: offset
    kVector,    // parts
    kPair,      // parts: d|p
    kLabel,     // index of the statement
    kName,      // special registers, functions, labels of tables
  };
  Kind kind = Kind::kName;
  bool is_negated = false;    // !p
  bool is_single = false;     // kFloat
  bool is_of_module = false;  // kVariable
  int index = 0;
  int64_t value = 0;
  absl::string_view name;
  std::vector<Operand> parts;
};

struct Statement {
  absl::string_view opcode;                  // "ld"
  std::vector<absl::string_view> modifiers;  // "global", "nc", "u8"
  std::vector<Operand> operands;
  int predicate = -1;  // register
  bool is_predicate_negated = false;
  int line = 0;       // of the PTX
  int location = -1;  // in ModuleSyntax::locations
  // .pragma "used_bytes_mask": bit i is byte i of the load.
  uint64_t used_bytes_mask = ~uint64_t{0};
};

// PTX ISA, ".loc".
struct Location {
  int file = 0;
  int line = 0;
  absl::string_view function_label;  // of a string in .debug_str; may be empty
  int inlined_at = -1;               // another location
};

struct BranchTable {
  absl::string_view label;
  std::vector<int> targets;  // statements
};

struct FunctionSyntax {
  absl::string_view name;
  bool is_entry = false;
  int line = 0;
  int max_threads = 0;  // .maxntid, .reqntid; 0: not said
  // Returns, then parameters, then all others: local, shared, .param of calls.
  std::vector<Variable> variables;
  int num_returns = 0;
  int num_parameters = 0;
  std::vector<Register> registers;
  std::vector<Statement> statements;
  std::vector<BranchTable> tables;
};

struct ModuleSyntax {
  std::vector<FunctionSyntax> functions;  // those with a body
  std::vector<Variable> variables;        // .global, .const, .shared
  std::vector<Location> locations;
  std::vector<std::string> files;                               // by number
  absl::flat_hash_map<absl::string_view, std::string> strings;  // .debug_str
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_SYNTAX_H_
