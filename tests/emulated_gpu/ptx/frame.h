// Where the registers of a function are in its frame. Registers that are never
// live together share a place.

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_FRAME_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_FRAME_H_

#include <cstdint>
#include <vector>

#include "tests/emulated_gpu/ptx/flow.h"
#include "tests/emulated_gpu/ptx/syntax.h"

namespace datasetd::emulated_gpu {

struct RegisterFrame {
  std::vector<uint32_t> offsets;  // by register
  uint32_t size_bytes = 0;
};

// Bytes of one lane in a register; 0: a predicate, a bit a lane. 8-bit values
// live in registers of 16.
int RegisterBytes(Type type);

RegisterFrame PlaceRegisters(const FunctionSyntax& function, const Flow& flow);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_FRAME_H_
