// Images for the tests of ops, as a chain holds them: planar float32.

#ifndef DATASETD_TESTS_CUDA_KERNELS_OPS_OP_IMAGE_H_
#define DATASETD_TESTS_CUDA_KERNELS_OPS_OP_IMAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/reference/colour_reference.h"

namespace datasetd {

struct OpImage {
  std::string name;  // for messages
  int num_channels = 0;
  int height = 0;
  int width = 0;
  float bound = 255.0f;       // 255 or 1
  std::vector<float> values;  // [C, H, W]

  int64_t plane_size() const { return int64_t{height} * width; }
};

// Noise, a ramp, few levels, one value and extremes; 1x1, 2x3, 31x33 and
// 123x66; 1 and 3 channels; uint8 and floating point.
std::vector<OpImage> TestImages();

reference::ColourImage ToReference(const OpImage& image);

// The largest difference of values, in units of the bound; infinity if the
// shapes differ or a value is NaN.
double Difference(const OpImage& image, const reference::ColourImage& other);

}  // namespace datasetd

#endif  // DATASETD_TESTS_CUDA_KERNELS_OPS_OP_IMAGE_H_
