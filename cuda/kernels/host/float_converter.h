// Converts the float32 pixels of an image to final output elements, on the
// host.

#ifndef DATASETD_CUDA_KERNELS_HOST_FLOAT_CONVERTER_H_
#define DATASETD_CUDA_KERNELS_HOST_FLOAT_CONVERTER_H_

#include <cstdint>

#include "cuda/kernels/program/params.h"

namespace datasetd {

// Has the members of ByteConverter that augment_host.cc uses. Keeps a reference
// to the field.
class FloatConverter {
 public:
  using Element = float;

  explicit FloatConverter(const FieldProgram& field) : field_(field) {}

  // Always false: fill is not an input value.
  bool has_fill_bytes() const { return false; }
  float fill_byte(int, int) const { return 0.0f; }

  void ConvertPlane(const float* from, int64_t count, int channel,
                    uint8_t* to) const;
  void ConvertPixels(const float* from, int64_t count, uint8_t* to) const;

 private:
  // Converts `count` values of one channel, `stride` apart in input and output.
  void Convert(const float* from, int64_t count, int64_t stride, int channel,
               uint8_t* to) const;

  const FieldProgram& field_;
};

}  // namespace datasetd

#endif  // DATASETD_CUDA_KERNELS_HOST_FLOAT_CONVERTER_H_
