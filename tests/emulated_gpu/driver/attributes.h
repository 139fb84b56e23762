// CUdevice_attribute of the emulated GPU.

#ifndef DATASETD_TESTS_EMULATED_GPU_DRIVER_ATTRIBUTES_H_
#define DATASETD_TESTS_EMULATED_GPU_DRIVER_ATTRIBUTES_H_

#include <cuda.h>

#include <optional>

#include "tests/emulated_gpu/driver/settings.h"

namespace datasetd::emulated_driver {

// Nothing for a number that is no attribute; 0 for one that the emulated GPU
// does not have.
std::optional<int> ReadAttribute(const Settings& settings, int device,
                                 CUdevice_attribute attribute);

}  // namespace datasetd::emulated_driver

#endif  // DATASETD_TESTS_EMULATED_GPU_DRIVER_ATTRIBUTES_H_
