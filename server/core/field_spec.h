// The shape of one named array of a dataset.

#ifndef DATASETD_SERVER_CORE_FIELD_SPEC_H_
#define DATASETD_SERVER_CORE_FIELD_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/dtype.h"

namespace datasetd {

struct FieldSpec {
  std::string name;
  Dtype dtype = Dtype::kUint8;
  // Of one sample: [H, W, C] of an image, [] of a scalar.
  std::vector<int64_t> shape;
  bool is_image = false;
  // An image whose values are classes: geometry samples it nearest, and colour
  // ops are refused. Implies is_image.
  bool is_mask = false;
  // Of an image, in a source only: samples may differ in height and width.
  bool is_ragged = false;

  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t extent : shape) n *= extent;
    return n;
  }
  int64_t sample_bytes() const {
    return num_elements() * DtypeSizeBytes(dtype);
  }
  bool operator==(const FieldSpec&) const = default;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_FIELD_SPEC_H_
