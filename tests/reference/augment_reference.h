// The augment kernel written from the definitions of torchvision, naively: each
// op makes a new image, in the order of the pipeline. For tests; of
// cuda/kernels it uses the structs of params.h alone.

#ifndef DATASETD_TESTS_REFERENCE_AUGMENT_REFERENCE_H_
#define DATASETD_TESTS_REFERENCE_AUGMENT_REFERENCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/kernels/program/params.h"

namespace datasetd::reference {

// One field of one batch, num_samples rows.
struct FieldOutput {
  // As it must lie in the slot: float32 steps, one rounding.
  std::vector<uint8_t> bytes;
  // The same elements computed in double and not rounded, and how far float32
  // may be from them: 1 ulp of the largest number met on the way. Images only.
  std::vector<double> exact;
  std::vector<double> tolerance;
};

FieldOutput AugmentField(const AugmentProgram& program, int field_index,
                         const BatchTask& batch);

// The value that `bytes` of `dtype` at element `index` hold.
double ElementValue(const std::vector<uint8_t>& bytes, Dtype dtype,
                    size_t index);

}  // namespace datasetd::reference

#endif  // DATASETD_TESTS_REFERENCE_AUGMENT_REFERENCE_H_
