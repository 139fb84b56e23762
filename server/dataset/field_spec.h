// The shape of one named array of a dataset.

#ifndef DATASETD_SERVER_DATASET_FIELD_SPEC_H_
#define DATASETD_SERVER_DATASET_FIELD_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/checked_math.h"
#include "base/dtype.h"

namespace datasetd {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

// Fields of a dataset; a feed carries kMaxFields of them
// (cuda/kernels/program/params.h).
inline constexpr int kMaxDatasetFields = 256;

// The height and width of an image of which each sample has its own.
inline constexpr int64_t kAnyExtent = -1;
// Of the height and width of such a sample.
inline constexpr int64_t kMaxRaggedExtent = 1 << 24;

struct FieldSpec {
  std::string name;
  Dtype dtype = Dtype::kUint8;
  // Of one sample: [H, W, C] of an image, [] of a scalar; of a packed image
  // [kAnyExtent, kAnyExtent, C].
  std::vector<int64_t> shape;
  bool is_image = false;
  // An image whose values are classes: geometry samples it nearest, and colour
  // ops are refused. Implies is_image.
  bool is_mask = false;
  // Of an image of an encoded source: samples may differ in height and width.
  bool is_ragged = false;
  // Of a packed image: by each axis, of all samples; the pixels of all of them
  // together; what they take, with what is between them, at most.
  ImageSize smallest;
  ImageSize largest;
  int64_t num_pixels = 0;
  int64_t packed_bytes = 0;

  // True of an image whose samples differ in size, resident or in a plain
  // source: see server/dataset/ragged_index.h.
  bool is_packed() const {
    return is_image && shape.size() > 1 && shape[0] == kAnyExtent;
  }
  // Held at the largest number. REQUIRES of both: !is_packed().
  int64_t num_elements() const {
    int64_t n = 1;
    for (int64_t extent : shape) n = SaturatingMultiply(n, extent);
    return n;
  }
  int64_t sample_bytes() const {
    return SaturatingMultiply(num_elements(), DtypeSizeBytes(dtype));
  }
  bool operator==(const FieldSpec&) const = default;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_FIELD_SPEC_H_
