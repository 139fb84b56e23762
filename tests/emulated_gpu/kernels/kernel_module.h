// The PTX of cuda/kernels/augment.cu, parsed once, and its kernels by name.

#ifndef DATASETD_TESTS_EMULATED_GPU_KERNELS_KERNEL_MODULE_H_
#define DATASETD_TESTS_EMULATED_GPU_KERNELS_KERNEL_MODULE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/module.h"

namespace datasetd::emulated_gpu {

// The text, from the test's runfiles. Ends the process if it is not there.
std::string ReadAugmentPtx();

// Ends the process if the PTX cannot be parsed.
const Module& AugmentModule();

// The kernel whose name, which may be mangled, holds `name`. Ends the process
// if there is not exactly one.
const FunctionInfo& FindKernel(const Module& module, absl::string_view name);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_KERNELS_KERNEL_MODULE_H_
