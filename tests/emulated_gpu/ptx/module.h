// A module of PTX: parsed, checked and ready to run.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_MODULE_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_MODULE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace datasetd::emulated_gpu {

struct ModuleCode;

struct ParseOptions {
  // fma, .ftz and .approx give other bits than the host, so that the kernels
  // of datasetd must not have them: they are refused by name. Where allowed,
  // .approx gives the correctly rounded value.
  bool allow_fma = false;
  bool allow_ftz = false;
  bool allow_approx = false;
};

struct ParameterInfo {
  std::string name;
  int64_t offset_bytes = 0;
  int64_t size_bytes = 0;
  int64_t alignment = 1;
};

struct FunctionInfo {
  std::string name;
  bool is_entry = false;
  std::vector<ParameterInfo> parameters;
  int64_t parameter_bytes = 0;
  int64_t static_shared_bytes = 0;
  int64_t local_bytes = 0;  // of this function alone
  int max_threads = 0;      // of a block; 0: not said
  int num_instructions = 0;
};

// Immutable and thread-safe; copies share.
class Module {
 public:
  // `ptx` may be freed afterwards. UNIMPLEMENTED names an opcode, modifier or
  // directive that is not known, INVALID_ARGUMENT what is wrong; both with the
  // line.
  static absl::StatusOr<Module> Parse(absl::string_view ptx,
                                      const ParseOptions& options = {});

  absl::Span<const FunctionInfo> functions() const { return functions_; }
  // nullptr: there is none of that name.
  const FunctionInfo* FindFunction(absl::string_view name) const;

  const ModuleCode& code() const { return *code_; }

 private:
  std::shared_ptr<const ModuleCode> code_;
  std::vector<FunctionInfo> functions_;
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_MODULE_H_
