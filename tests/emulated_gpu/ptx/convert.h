// The handlers of cvt. PTX ISA, "cvt".

#ifndef DATASETD_TESTS_EMULATED_GPU_PTX_CONVERT_H_
#define DATASETD_TESTS_EMULATED_GPU_PTX_CONVERT_H_

#include <cstdint>

#include "tests/emulated_gpu/ptx/micro_op.h"
#include "tests/emulated_gpu/ptx/type.h"

namespace datasetd::emulated_gpu {

enum class Rounding : uint8_t {
  kNone,
  kNearest,     // .rn
  kZero,        // .rz
  kDown,        // .rm
  kUp,          // .rp
  kNearestInt,  // .rni
  kZeroInt,     // .rzi
  kDownInt,     // .rmi
  kUpInt,       // .rpi
};

// MicroOp: element_bytes and register_bytes are those of the registers of d and
// a; variant is the Rounding; is_signed is .sat. nullptr: there is no such cvt.
Handler ConvertHandler(Type to, Type from);

// d = {a, b} as two halves, a the upper. MicroOp: variant is the Rounding.
Handler ConvertPairHandler(Type to);

// `value` in a format of 16 bits with so many bits of mantissa, rounded once.
// kNearest or kZero. NaN is 0x7FFF.
uint16_t EncodeHalf(double value, int mantissa_bits, Rounding rounding);
double DecodeHalf(uint16_t bits, int mantissa_bits);

}  // namespace datasetd::emulated_gpu

#endif  // DATASETD_TESTS_EMULATED_GPU_PTX_CONVERT_H_
