// Interpolation modes, with the same values in kernels and on the wire.

#ifndef DATASETD_CUDA_KERNELS_MATH_INTERPOLATION_H_
#define DATASETD_CUDA_KERNELS_MATH_INTERPOLATION_H_

#include <cstdint>

namespace datasetd {

// Values as in datasetd.v1.InterpolationMode; meaning as in torch.
enum class InterpolationMode : uint8_t {
  kNearest = 1,
  kNearestExact = 2,
  kBilinear = 3,
  kBicubic = 4,
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_MATH_INTERPOLATION_H_
