// The augment kernel as one loop over pixels, without any fast path: what
// AugmentHost and the CUDA kernel are checked against, bit for bit.

#ifndef DATASETD_TESTS_TESTING_AUGMENT_PLAIN_H_
#define DATASETD_TESTS_TESTING_AUGMENT_PLAIN_H_

#include "cuda/kernels/program/params.h"

namespace datasetd {

// As AugmentHost, only slow.
void AugmentPlain(const AugmentProgram& program, const BatchTask& batch);

}  // namespace datasetd

#endif  // DATASETD_TESTS_TESTING_AUGMENT_PLAIN_H_
