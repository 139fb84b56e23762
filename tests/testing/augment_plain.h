// The augment kernel as one plain loop over pixels: the reference that
// AugmentHost and the CUDA kernel must match bit for bit.

#ifndef DATASETD_TESTS_TESTING_AUGMENT_PLAIN_H_
#define DATASETD_TESTS_TESTING_AUGMENT_PLAIN_H_

#include "cuda/kernels/program/params.h"

namespace datasetd {

// Like AugmentHost, but slow.
void AugmentPlain(const AugmentProgram& program, const BatchTask& batch);

}  // namespace datasetd

#endif  // DATASETD_TESTS_TESTING_AUGMENT_PLAIN_H_
