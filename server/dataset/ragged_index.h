// Where the samples of a packed field lie in its memory, and their sizes: what
// the kernels read, as the host keeps it.
//
// Samples stand in order, each from a multiple of kRaggedAlignmentBytes, and
// the bytes between them are 0. One may be the sample before it over again, and
// then has the place of that. Copyable; not thread-safe while it is made.

#ifndef DATASETD_SERVER_DATASET_RAGGED_INDEX_H_
#define DATASETD_SERVER_DATASET_RAGGED_INDEX_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/checked_math.h"
#include "cuda/kernels/program/params.h"
#include "server/dataset/field_spec.h"

namespace datasetd {

// Bytes from a multiple of kRaggedAlignmentBytes to the next, for `bytes`; held
// at the largest.
constexpr int64_t PaddedSampleBytes(int64_t bytes) {
  return SaturatingRoundUp(bytes, kRaggedAlignmentBytes);
}

// What a pixel of an image field takes.
int64_t PixelBytes(const FieldSpec& field);

// Height and width are within 1..kMaxRaggedExtent, and a sample's elements
// below 2^31.
bool IsRaggedSize(const FieldSpec& field, ImageSize size);

class RaggedIndex {
 public:
  explicit RaggedIndex(int64_t pixel_bytes) : pixel_bytes_(pixel_bytes) {}

  // The index that was written to a file.
  //   DATA_LOSS  it is none of this field's
  static absl::StatusOr<RaggedIndex> Check(
      const FieldSpec& field, absl::Span<const RaggedSample> samples);

  void Reserve(int64_t num_samples) {
    samples_.reserve(static_cast<size_t>(num_samples));
  }
  // The next sample. REQUIRES: size_bytes() stays below 2^62.
  void Add(ImageSize size);
  // The next sample is the last one over again. REQUIRES: there is one.
  void Repeat() { samples_.push_back(samples_.back()); }

  const std::vector<RaggedSample>& samples() const { return samples_; }
  int64_t num_samples() const { return static_cast<int64_t>(samples_.size()); }
  int64_t index_bytes() const {
    return num_samples() * static_cast<int64_t>(sizeof(RaggedSample));
  }
  ImageSize size(int64_t sample) const;
  // Of a sample, without what is between it and the next.
  int64_t sample_bytes(int64_t sample) const;
  // Of the samples from the first to before this one.
  int64_t BytesBefore(int64_t sample) const;
  // Of all samples, a multiple of kRaggedAlignmentBytes.
  int64_t size_bytes() const { return size_bytes_; }

  // Each size that there is, once.
  std::vector<ImageSize> DistinctSizes() const;
  // Sets smallest, largest, num_pixels and packed_bytes.
  // REQUIRES: there are samples.
  void Describe(FieldSpec* field) const;

 private:
  int64_t pixel_bytes_;
  std::vector<RaggedSample> samples_;
  int64_t size_bytes_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_RAGGED_INDEX_H_
