// Kinds of instructions, as they are counted.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_OP_CLASS_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_OP_CLASS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace datasetd::emulated_gpu {

enum class OpClass : uint8_t {
  kInteger,  // of at most 32 bits; logic and shifts, too
  kInteger64,
  kDivide,  // div, rem, rcp, sqrt of any type
  kFloat,
  kDouble,
  kConvert,
  kCompare,  // setp, selp, predicates
  kMove,
  kGlobalLoad,  // generic ones count by where they went
  kGlobalStore,
  kSharedLoad,
  kSharedStore,
  kLocalLoad,
  kLocalStore,
  kParamAccess,
  kAtomic,
  kBranch,  // bra, call, ret
  kBarrier,
  kExchange,  // shfl, vote, redux
  kOther,
};
inline constexpr int kNumOpClasses = static_cast<int>(OpClass::kOther) + 1;

constexpr absl::string_view OpClassName(OpClass op_class) {
  constexpr absl::string_view kNames[kNumOpClasses] = {
      "integer",     "integer64",    "divide",      "float",
      "double",      "convert",      "compare",     "move",
      "global load", "global store", "shared load", "shared store",
      "local load",  "local store",  "parameter",   "atomic",
      "branch",      "barrier",      "exchange",    "other"};
  return kNames[static_cast<int>(op_class)];
}

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_OP_CLASS_H_
