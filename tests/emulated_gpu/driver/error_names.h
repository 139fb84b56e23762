// The names of CUresult. Not every toolkit has all; those of 12.0 are here.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_ERROR_NAMES_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_ERROR_NAMES_H_

#include <cuda.h>

namespace datasetd::emulated_driver {

// "CUDA_ERROR_OUT_OF_MEMORY"; nullptr for a number that is no error.
const char* ErrorName(CUresult error);

// "out of memory"; nullptr likewise.
const char* ErrorText(CUresult error);

// True for errors after which a context answers nothing else (cuda.h: "This
// leaves the process in an inconsistent state and any further CUDA work will
// return the same error").
bool IsSticky(CUresult error);

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_ERROR_NAMES_H_
