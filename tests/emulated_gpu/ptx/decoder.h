// Turns a function's statements into micro operations. Every opcode and every
// modifier that it does not know is refused by name.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_DECODER_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_DECODER_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/module.h"
#include "tests/emulated_gpu/ptx/syntax.h"

namespace datasetd::emulated_gpu {

struct DecodeContext {
  const ModuleSyntax& module;  // variables have their offsets
  const ParseOptions& options;
  const absl::flat_hash_map<absl::string_view, int>& functions;  // by name
  int64_t first_shared_byte = 0;  // of the function's own variables
};

absl::StatusOr<FunctionCode> DecodeFunction(const FunctionSyntax& function,
                                            const DecodeContext& context);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_DECODER_H_
