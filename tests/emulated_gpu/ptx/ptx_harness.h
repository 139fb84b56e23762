// Runs small PTX programs in tests.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_PTX_HARNESS_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_PTX_HARNESS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/emulated_gpu/ptx/execute.h"
#include "tests/emulated_gpu/ptx/module.h"

namespace datasetd::emulated_gpu {

// A module with the kernel "k", which takes the pointers `in` and `out` and has
// these registers: %p<16> .pred, %h<16> .b16, %r<64> .b32, %d<64> .b64,
// %f<16> .f32, %g<16> .f64. `variables` stand before the body's registers.
std::string Kernel(absl::string_view body, absl::string_view variables = "",
                   absl::string_view functions = "");

struct KernelRun {
  std::vector<uint32_t> out;
  LaunchResult result;
};

// Runs "k" of `ptx` with `in`, of which nothing is written, and `num_out` words
// of zeros. Reports a module that cannot be parsed or launched to GoogleTest.
KernelRun RunKernel(const std::string& ptx, const LaunchConfig& config,
                    std::vector<uint32_t> in, size_t num_out,
                    const ParseOptions& options = {});

// The value of register `result` after `instructions`, run by one thread.
// Before them a, b and c are in %d1..3, and their low bits in %r1..3, %h1..3,
// %f1..3 and %g1..3.
uint64_t Evaluate(absl::string_view instructions, absl::string_view result,
                  std::array<uint64_t, 3> operands,
                  const ParseOptions& options = {});

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_PTX_HARNESS_H_
