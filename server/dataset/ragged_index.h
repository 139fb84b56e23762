// The places and sizes of the samples in a packed field's memory; the host's
// copy of what the kernels read.
//
// Samples are stored in order, each aligned to kRaggedAlignmentBytes, with zero
// bytes between them. A repeated sample shares the place of the one before it.
// Copyable; not thread-safe while it is being built.

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

// `bytes` rounded up to a multiple of kRaggedAlignmentBytes; saturates.
constexpr int64_t PaddedSampleBytes(int64_t bytes) {
  return SaturatingRoundUp(bytes, kRaggedAlignmentBytes);
}

// Size of one pixel of an image field, or step of a sequence.
int64_t PixelBytes(const FieldSpec& field);

// True if a sample of a packed field may have this size: fewer than 2^31
// elements; an image with sides of 1..kMaxRaggedExtent, a sequence as 0 or more
// steps by 1.
bool IsRaggedSize(const FieldSpec& field, ImageSize size);

class RaggedIndex {
 public:
  explicit RaggedIndex(int64_t pixel_bytes) : pixel_bytes_(pixel_bytes) {}

  // Rebuilds an index that was read from a file.
  //   DATA_LOSS  it is not a valid index of this field
  static absl::StatusOr<RaggedIndex> Check(
      const FieldSpec& field, absl::Span<const RaggedSample> samples);

  void Reserve(int64_t num_samples) {
    samples_.reserve(static_cast<size_t>(num_samples));
  }
  // Appends a sample. REQUIRES: size_bytes() stays below 2^62.
  void Add(ImageSize size);
  // Appends a repetition of the last sample. REQUIRES: there is one.
  void Repeat() { samples_.push_back(samples_.back()); }

  const std::vector<RaggedSample>& samples() const { return samples_; }
  int64_t num_samples() const { return static_cast<int64_t>(samples_.size()); }
  int64_t index_bytes() const {
    return num_samples() * static_cast<int64_t>(sizeof(RaggedSample));
  }
  ImageSize size(int64_t sample) const;
  // Size of a sample without padding.
  int64_t sample_bytes(int64_t sample) const;
  // Total size of the samples before this one.
  int64_t BytesBefore(int64_t sample) const;
  // Total size of all samples, a multiple of kRaggedAlignmentBytes.
  int64_t size_bytes() const { return size_bytes_; }

  // The distinct sizes.
  std::vector<ImageSize> DistinctSizes() const;
  // Sets smallest, largest, num_pixels and packed_bytes. REQUIRES: not empty.
  void Describe(FieldSpec* field) const;

 private:
  int64_t pixel_bytes_;
  std::vector<RaggedSample> samples_;
  int64_t size_bytes_ = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_RAGGED_INDEX_H_
