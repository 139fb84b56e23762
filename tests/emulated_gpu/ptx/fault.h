// An error of a kernel, as compute-sanitizer would print it.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_FAULT_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_FAULT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace datasetd::emulated_gpu {

enum class FaultKind {
  kInvalidAddress,     // CUDA_ERROR_ILLEGAL_ADDRESS
  kMisalignedAddress,  // CUDA_ERROR_MISALIGNED_ADDRESS
  kUninitialised,      // a register, shared or local memory is read unwritten
  kRace,               // two threads, one of them writes, no barrier between
  kReadOnlyWritten,    // ld.global.nc of what the launch writes
  kDivergentBarrier,
  kDivisionByZero,     // of integers
  kInstructionBudget,  // CUDA_ERROR_LAUNCH_TIMEOUT
  kStackOverflow,
  kTrap,
};

absl::string_view FaultKindName(FaultKind kind);

struct Dim3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;

  uint64_t Count() const { return uint64_t{x} * y * z; }
};

struct SourceLine {
  std::string file;
  int line = 0;
  std::string function;  // empty: the kernel itself
};

struct Fault {
  FaultKind kind = FaultKind::kTrap;
  std::string message;  // "read of 4 bytes in global memory: no allocation"
  std::string kernel;
  std::string function;  // where it happened: the kernel or what it calls
  Dim3 block;            // of the lowest lane
  Dim3 thread;
  uint64_t address = 0;  // of memory
  int ptx_line = 0;
  // From .loc: the innermost first, then what it was inlined into. Empty
  // without -lineinfo.
  std::vector<SourceLine> source;

  std::string ToString() const;
};

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_FAULT_H_
