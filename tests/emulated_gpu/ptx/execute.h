// Runs a kernel on the host and checks what it does.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_EXECUTE_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_EXECUTE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tests/emulated_gpu/address_space.h"
#include "tests/emulated_gpu/ptx/counters.h"
#include "tests/emulated_gpu/ptx/fault.h"
#include "tests/emulated_gpu/ptx/module.h"

namespace datasetd::emulated_gpu {

struct LaunchConfig {
  Dim3 grid;
  Dim3 block;
  int64_t dynamic_shared_bytes = 0;

  // Blocks run in order on one, and side by side on several. Results and
  // counts are the same; which of several faults is reported may differ.
  int num_host_threads = 1;
  // The limit for all warps together; more is a fault, as of an endless loop.
  uint64_t max_warp_instructions = uint64_t{1} << 36;

  bool check_races = true;
  bool check_uninitialised = true;  // of shared memory with check_races only
  // Likewise of local memory. nvcc loads a thread's array before it asks
  // whether it is needed, so that correct kernels have such reads: what was
  // not written is 0xFF.
  bool check_local = false;
  bool count_accesses = false;
  bool count_lines = false;

  // To plant a fault: the barrier at this line of the PTX is passed by.
  int skipped_barrier_ptx_line = -1;

  // The module's variables, ModuleVariables() of it when it was loaded, kept
  // from launch to launch. Empty: fresh ones.
  absl::Span<uint8_t> module_variables;
};

struct LaunchResult {
  // Set: the kernel was stopped there, as by CUDA, and memory holds what it had
  // written by then.
  std::optional<Fault> fault;
  Counters counters;
};

// The .global and .const variables of a module with their initial values.
std::vector<uint8_t> ModuleVariables(const Module& module);

// Runs `kernel`; complete on return. `parameters` are the kernel's, laid out as
// FunctionInfo says. Translations of `memory` are kept until a block has ended.
//
// NOT_FOUND: no such kernel. INVALID_ARGUMENT: parameters of another size, or a
// block that is empty or larger than 1,024 or .maxntid. RESOURCE_EXHAUSTED:
// more shared memory than 227 KiB, or a launch too long to tell races in it.
// A fault of the kernel is no error of this call: see LaunchResult.
absl::StatusOr<LaunchResult> Execute(const Module& module,
                                     absl::string_view kernel,
                                     const LaunchConfig& config,
                                     absl::Span<const uint8_t> parameters,
                                     AddressSpace& memory);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_EXECUTE_H_
