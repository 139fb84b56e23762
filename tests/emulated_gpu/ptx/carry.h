// Addition and subtraction of integers longer than a register. PTX ISA,
// "Extended-Precision Integer Arithmetic Instructions".

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_CARRY_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_CARRY_H_

#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

// Bits of MicroOp::variant.
inline constexpr uint8_t kSubtract = 1;
inline constexpr uint8_t kCarryIn = 2;   // addc, subc
inline constexpr uint8_t kCarryOut = 4;  // .cc

// d = a + b or a - b with the carry of WarpState. nullptr: there is no such
// instruction for the type.
Handler CarryHandler(Type type);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_CARRY_H_
