// The inside of a Module.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_MODULE_CODE_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_MODULE_CODE_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/emulated_gpu/ptx/fault.h"
#include "tests/emulated_gpu/ptx/micro_op.h"

namespace datasetd::emulated_gpu {

struct CodeLocation {
  std::string file;
  int line = 0;
  std::string function;  // that was inlined there; empty: the kernel's own
  int inlined_at = -1;
};

struct ModuleCode {
  std::vector<FunctionCode> functions;
  std::unordered_map<std::string, int> by_name;
  std::vector<CodeLocation> locations;
  std::vector<uint8_t> variables;  // .global and .const, initial
};

// The lines of `location`, the innermost first.
inline std::vector<SourceLine> SourceLines(const ModuleCode& code,
                                           int location) {
  std::vector<SourceLine> lines;
  while (location >= 0 && lines.size() < 32) {
    const CodeLocation& at = code.locations[location];
    lines.push_back({at.file, at.line, at.function});
    location = at.inlined_at;
  }
  return lines;
}

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_MODULE_CODE_H_
