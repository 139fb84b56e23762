// The name, dtype and shape of one field of a dataset.

#ifndef DATASETD_SERVER_DATASET_FIELD_SPEC_H_
#define DATASETD_SERVER_DATASET_FIELD_SPEC_H_

#include <algorithm>
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

// Widens a range of sizes, axis by axis. One whose largest is 0 x 0 is empty.
inline void IncludeSize(ImageSize size, ImageSize& smallest,
                        ImageSize& largest) {
  if (largest == ImageSize()) smallest = size;
  smallest.height = std::min(smallest.height, size.height);
  smallest.width = std::min(smallest.width, size.width);
  largest.height = std::max(largest.height, size.height);
  largest.width = std::max(largest.width, size.width);
}

// Fields of a dataset; a feed carries kMaxFields of them
// (cuda/kernels/program/params.h).
inline constexpr int kMaxDatasetFields = 256;

// The height and width of an image whose size differs between samples, and the
// number of steps of a sequence.
inline constexpr int64_t kAnyExtent = -1;
// Maximum height and width of such an image.
inline constexpr int64_t kMaxRaggedExtent = 1 << 24;

// True for what images can be in memory.
inline bool IsImageDtype(Dtype dtype) {
  return dtype == Dtype::kUint8 || dtype == Dtype::kFloat16 ||
         dtype == Dtype::kBfloat16 || dtype == Dtype::kFloat32;
}

struct FieldSpec {
  std::string name;
  Dtype dtype = Dtype::kUint8;
  // Shape of one sample: [H, W, C] for images, [] for scalars, [kAnyExtent,
  // kAnyExtent, C] for packed images, [kAnyExtent] or [kAnyExtent, C] for
  // sequences.
  std::vector<int64_t> shape;
  bool is_image = false;
  // An image whose values are class ids: geometry uses nearest interpolation,
  // colour ops are refused. Implies is_image.
  bool is_mask = false;
  // For an image of an encoded source: height and width may differ between
  // samples.
  bool is_ragged = false;
  // For a packed field: the extremes of each axis over all samples, the pixels
  // of all samples, and the maximum size of all samples with padding. A step of
  // a sequence counts as a pixel, and T steps as T x 1.
  ImageSize smallest;
  ImageSize largest;
  int64_t num_pixels = 0;
  int64_t packed_bytes = 0;

  // True for a field whose samples differ in size, resident or in a plain
  // source; see server/dataset/ragged_index.h.
  bool is_packed() const {
    return !shape.empty() && shape[0] == kAnyExtent &&
           (shape.size() > 1 || !is_image);
  }
  // True for a packed field of sequences of several lengths.
  bool is_sequence() const { return is_packed() && !is_image; }
  // Saturates. REQUIRES for both: !is_packed().
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
