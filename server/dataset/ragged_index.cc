#include "server/dataset/ragged_index.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace datasetd {

int64_t PixelBytes(const FieldSpec& field) {
  int64_t bytes = DtypeSizeBytes(field.dtype);
  for (size_t i = field.is_image ? 2 : 1; i < field.shape.size(); ++i) {
    bytes = SaturatingMultiply(bytes, field.shape[i]);
  }
  return bytes;
}

bool IsRaggedSize(const FieldSpec& field, ImageSize size) {
  constexpr int64_t kMaxSampleElements = std::numeric_limits<int32_t>::max();
  // [H, W, C] or [T, C]; of one without C the last extent is -1.
  const bool has_channels = field.shape.size() == (field.is_image ? 3 : 2);
  const int64_t channels = has_channels ? field.shape.back() : 1;
  if (field.is_sequence()) {
    return size.width == 1 && size.height >= 0 &&
           size.height <= kMaxSampleElements / channels;
  }
  if (size.height < 1 || size.width < 1 || size.height > kMaxRaggedExtent ||
      size.width > kMaxRaggedExtent) {
    return false;
  }
  return size.height * size.width <= kMaxSampleElements / channels;
}

absl::StatusOr<RaggedIndex> RaggedIndex::Check(
    const FieldSpec& field, absl::Span<const RaggedSample> samples) {
  RaggedIndex index(PixelBytes(field));
  index.Reserve(static_cast<int64_t>(samples.size()));
  for (const RaggedSample& sample : samples) {
    const ImageSize size = {sample.height, sample.width};
    if (!index.samples_.empty() &&
        sample.offset_bytes == index.samples_.back().offset_bytes &&
        size == index.size(index.num_samples() - 1)) {
      index.Repeat();
    } else if (sample.offset_bytes == index.size_bytes() &&
               IsRaggedSize(field, size)) {
      index.Add(size);
    } else {
      return absl::DataLossError(
          absl::StrCat("the place or size of sample ", index.num_samples(),
                       " of field '", field.name, "' makes no sense"));
    }
  }
  return index;
}

void RaggedIndex::Add(ImageSize size) {
  samples_.push_back({.offset_bytes = size_bytes_,
                      .height = Narrow<int32_t>(size.height),
                      .width = Narrow<int32_t>(size.width)});
  size_bytes_ =
      SaturatingAdd(size_bytes_, PaddedSampleBytes(SaturatingProduct(
                                     size.height, size.width, pixel_bytes_)));
}

ImageSize RaggedIndex::size(int64_t sample) const {
  const RaggedSample& place = samples_[static_cast<size_t>(sample)];
  return {place.height, place.width};
}

int64_t RaggedIndex::sample_bytes(int64_t sample) const {
  const ImageSize of = size(sample);
  return of.height * of.width * pixel_bytes_;
}

int64_t RaggedIndex::BytesBefore(int64_t sample) const {
  if (sample == 0) return 0;
  return samples_[static_cast<size_t>(sample - 1)].offset_bytes +
         PaddedSampleBytes(sample_bytes(sample - 1));
}

std::vector<ImageSize> RaggedIndex::DistinctSizes() const {
  std::vector<std::pair<int32_t, int32_t>> sizes;
  sizes.reserve(samples_.size());
  for (const RaggedSample& sample : samples_) {
    sizes.emplace_back(sample.height, sample.width);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  std::vector<ImageSize> distinct;
  distinct.reserve(sizes.size());
  for (const auto& [height, width] : sizes) {
    distinct.push_back({height, width});
  }
  return distinct;
}

void RaggedIndex::Describe(FieldSpec* field) const {
  field->smallest = field->largest = {};
  field->num_pixels = 0;
  field->packed_bytes = size_bytes_;
  for (const RaggedSample& sample : samples_) {
    IncludeSize({sample.height, sample.width}, field->smallest, field->largest);
    field->num_pixels += int64_t{sample.height} * sample.width;
  }
}

}  // namespace datasetd
