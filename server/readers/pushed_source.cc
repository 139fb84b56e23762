#include "server/readers/pushed_source.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/require.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

constexpr size_t kMaxPushedDimensions = 8;
constexpr size_t kMaxClassNames = 1 << 16;
// Staging holds at least two samples.
constexpr int64_t kMaxSampleBytes = 256 << 20;
constexpr int64_t kMaxPackedBytes = int64_t{1} << 50;
constexpr int64_t kMaxSamples = int64_t{1} << 40;
constexpr int64_t kMaxStepElements = std::numeric_limits<int32_t>::max();

// Checks a field whose samples differ in size.
absl::Status CheckPackedField(const SourceInfo& info, FieldSpec& field) {
  const std::string where = absl::StrCat("field '", field.name, "': ");
  const bool is_sequence = field.is_sequence();
  if (is_sequence
          ? field.shape.size() > 2 ||
                (field.shape.size() == 2 &&
                 (field.shape[1] < 1 || field.shape[1] > kMaxStepElements))
          : field.shape.size() != 3 || field.shape[1] != kAnyExtent ||
                field.shape[2] < 1 || field.shape[2] > kMaxImageChannels) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "shape ", ShapeText(field.shape),
                     ", expected an image as (-1, -1, C) with C of 1 to ",
                     kMaxImageChannels, ", or sequences as (-1) or (-1, C)"));
  }
  if (field.is_mask && is_sequence) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "a mask, and no image"));
  }
  const int64_t largest =
      SaturatingMultiply(field.largest.height, field.largest.width);
  if (!IsRaggedSize(field, field.largest) ||
      SaturatingMultiply(largest, PixelBytes(field)) > kMaxSampleBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, "largest is ", field.largest.height, " x ", field.largest.width,
        is_sequence
            ? std::string(", expected steps x 1")
            : absl::StrCat(", expected 1 to ", kMaxRaggedExtent, " each"),
        ", and at most ", kMaxSampleBytes, " bytes a sample"));
  }
  if (is_sequence && field.num_pixels == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, "its sequences have no steps at all: leave the field out"));
  }
  // Those of a sequence may be none.
  if (field.num_pixels < (is_sequence ? 1 : info.num_samples) ||
      field.num_pixels / info.num_samples > largest) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, "num_pixels is ", field.num_pixels, ", which ", info.num_samples,
        " samples of at most ", largest, " pixels cannot have"));
  }
  field.smallest = {is_sequence ? 0 : 1, 1};
  // Padding after a sample is less than the alignment.
  field.packed_bytes = SaturatingAdd(
      SaturatingMultiply(field.num_pixels, PixelBytes(field)),
      SaturatingMultiply(info.num_samples, kRaggedAlignmentBytes - 1));
  if (field.packed_bytes > kMaxPackedBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "num_pixels is ", field.num_pixels,
                     ", more than any memory holds"));
  }
  field.packed_bytes = PaddedSampleBytes(field.packed_bytes);
  return absl::OkStatus();
}

// Checks an image that comes as a file.
absl::Status CheckEncodedField(const FieldSpec& field) {
  const std::string where = absl::StrCat("field '", field.name, "': ");
  const bool is_image =
      field.dtype == Dtype::kUint8 && field.is_image && field.shape.size() == 3;
  const int64_t channels = is_image ? field.shape[2] : 0;
  if (channels != 1 && channels != 3 && channels != 4) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, "is_encoded, and ", DtypeName(field.dtype), " ",
        ShapeText(field.shape),
        ", expected an image of uint8 as (H, W, C) or (-1, -1, C) with C of "
        "1, 3 or 4"));
  }
  if (field.largest != ImageSize() || field.num_pixels != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        where,
        "is_encoded, so that the daemon finds largest and num_pixels: "
        "leave them out"));
  }
  return absl::OkStatus();
}

absl::Status CheckField(const SourceInfo& info, FieldSpec& field,
                        bool is_encoded, bool has_encoded) {
  const std::string where = absl::StrCat("field '", field.name, "': ");
  if (DtypeSizeBytes(field.dtype) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "its dtype is missing or unknown"));
  }
  if (is_encoded) {
    DATASETD_RETURN_IF_ERROR(CheckEncodedField(field));
    if (field.is_packed() && field.shape[1] == kAnyExtent) {
      return absl::OkStatus();
    }
  } else if (field.is_packed() && has_encoded) {
    return absl::InvalidArgumentError(absl::StrCat(
        where,
        field.is_image
            ? "differs in size, and other fields are encoded: encode this one, "
              "too, as PNG"
            : "its sequences have several lengths, and other fields are "
              "encoded images: push those as arrays of pixels, with "
              "datasetd.sources.decode_image"));
  } else if (field.is_packed()) {
    return CheckPackedField(info, field);
  }
  field.largest = {};
  field.num_pixels = 0;
  const std::string shape = ShapeText(field.shape);
  if (field.shape.size() > kMaxPushedDimensions) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "shape ", shape, " has more than ",
                     kMaxPushedDimensions, " dimensions"));
  }
  int64_t num_elements = 1;
  for (const int64_t extent : field.shape) {
    if (extent < 1 ||
        num_elements > std::numeric_limits<int32_t>::max() / extent) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, "shape ", shape,
          ": every extent is at least 1, and a sample has at most 2^31 - 1 "
          "elements"));
    }
    num_elements *= extent;
  }
  if (field.is_image &&
      (field.shape.size() != 3 || field.shape[2] > kMaxImageChannels)) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, "shape ", shape,
        ", expected an image as (H, W, C) with C of 1 to ", kMaxImageChannels));
  }
  if (field.is_mask && !field.is_image) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "a mask, and no image"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPushedInfo(SourceInfo* pushed,
                             const std::vector<bool>& is_encoded) {
  SourceInfo& info = *pushed;
  if (info.num_samples < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_samples: ", info.num_samples, ", expected at least 1"));
  }
  if (info.num_samples > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_samples: ", info.num_samples, ", more than any memory holds"));
  }
  if (info.fields.empty() || info.fields.size() > kMaxSourceFields) {
    return absl::InvalidArgumentError(absl::StrCat(
        "fields: ", info.fields.size(), ", expected 1 to ", kMaxSourceFields));
  }
  if (info.class_names.size() > kMaxClassNames) {
    return absl::InvalidArgumentError(
        absl::StrCat("class_names: ", info.class_names.size(),
                     ", expected at most ", kMaxClassNames));
  }
  DATASETD_RETURN_IF_ERROR(CheckNotes(info.notes));
  for (LoadNote& note : info.notes) note.text = PrintableUtf8(note.text);
  std::set<std::string> names;
  int64_t sample_bytes = 0;
  const bool has_encoded =
      std::find(is_encoded.begin(), is_encoded.end(), true) != is_encoded.end();
  for (size_t f = 0; f < info.fields.size(); ++f) {
    FieldSpec& field = info.fields[f];
    if (!IsFieldName(field.name) || !names.insert(field.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "fields: '", absl::Utf8SafeCHexEscape(field.name),
          "' cannot name a field: expected a letter or _, then letters, digits "
          "or _, at most ",
          kMaxFieldNameBytes, ", each name once"));
    }
    const bool is_file = f < is_encoded.size() && is_encoded[f];
    DATASETD_RETURN_IF_ERROR(CheckField(info, field, is_file, has_encoded));
    if (is_file && field.is_packed()) continue;  // its size is found later
    sample_bytes = SaturatingAdd(
        sample_bytes,
        field.is_packed()
            ? SaturatingProduct(field.largest.height, field.largest.width,
                                PixelBytes(field))
            : field.sample_bytes());
  }
  if (sample_bytes <= kMaxSampleBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("fields: ", sample_bytes,
                   " bytes a sample, expected at most ", kMaxSampleBytes));
}

PushedSource::PushedSource(SourceInfo info, NextBlock next_block,
                           const DecodeAccount& account)
    : info_(std::move(info)),
      next_block_(std::move(next_block)),
      indices_(info_.fields.size()),
      index_memory_(account) {
  info_.is_sequential = true;
}

absl::StatusOr<RaggedIndex> PushedSource::ReadIndex(size_t field) {
  const FieldSpec& spec = info_.fields[field];
  // One for the dataset, and one to read by.
  index_bytes_ = SaturatingAdd(
      index_bytes_,
      SaturatingMultiply(info_.num_samples, 2 * sizeof(RaggedSample)));
  DATASETD_RETURN_IF_ERROR(index_memory_.GrowTo(index_bytes_));
  RaggedIndex index(PixelBytes(spec));
  index.Reserve(info_.num_samples);
  int64_t num_pixels = 0;
  for (int64_t i = 0; i < info_.num_samples; ++i) {
    int32_t extents[2];
    DATASETD_RETURN_IF_ERROR(Copy(
        absl::MakeSpan(reinterpret_cast<uint8_t*>(extents), sizeof(extents))));
    const ImageSize size = {extents[0], extents[1]};
    if (!IsRaggedSize(spec, size) || size.height > spec.largest.height ||
        size.width > spec.largest.width) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sample ", i, ", field '", spec.name, "': its size is ", size.height,
          "x", size.width, spec.is_image ? " (height x width)" : " (steps x 1)",
          ", and the header's largest ", spec.largest.height, "x",
          spec.largest.width));
    }
    num_pixels += size.height * size.width;
    if (num_pixels > spec.num_pixels) break;
    index.Add(size);
  }
  if (num_pixels != spec.num_pixels) {
    return absl::InvalidArgumentError(absl::StrCat(
        "field '", spec.name, "': the samples have not the ", spec.num_pixels,
        spec.is_image ? " pixels" : " steps", " that the header declares"));
  }
  indices_[field] = index;
  return index;
}

absl::Status PushedSource::Read(int64_t first, int64_t count,
                                absl::Span<const absl::Span<uint8_t>> fields) {
  Require(first == position_, "the samples of a push are read in order");
  for (int64_t i = 0; i < count; ++i, ++position_) {
    for (size_t f = 0; f < fields.size(); ++f) {
      if (indices_[f].has_value()) {
        const RaggedIndex& index = *indices_[f];
        const int64_t begin =
            index.BytesBefore(position_) - index.BytesBefore(position_ - i);
        const int64_t bytes = index.sample_bytes(position_);
        const absl::Span<uint8_t> to =
            fields[f].subspan(static_cast<size_t>(begin),
                              static_cast<size_t>(PaddedSampleBytes(bytes)));
        DATASETD_RETURN_IF_ERROR(
            Copy(to.subspan(0, static_cast<size_t>(bytes))));
        std::fill(to.begin() + bytes, to.end(), uint8_t{0});
        continue;
      }
      const size_t bytes = static_cast<size_t>(info_.fields[f].sample_bytes());
      DATASETD_RETURN_IF_ERROR(
          Copy(fields[f].subspan(static_cast<size_t>(i) * bytes, bytes)));
    }
  }
  if (position_ < info_.num_samples) return absl::OkStatus();
  DATASETD_RETURN_IF_ERROR(FillBlock());
  if (is_ended_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("more was sent than the ", info_.num_samples,
                   " samples that the header declares"));
}

absl::Status PushedSource::Copy(absl::Span<uint8_t> to) {
  while (!to.empty()) {
    DATASETD_RETURN_IF_ERROR(FillBlock());
    if (is_ended_) {
      return absl::InvalidArgumentError(
          absl::StrCat("the samples ended after ", position_, " of ",
                       info_.num_samples, " that the header declares"));
    }
    const size_t size = std::min(to.size(), block_.size() - block_offset_);
    memcpy(to.data(), block_.data() + block_offset_, size);
    block_offset_ += size;
    to.remove_prefix(size);
  }
  return absl::OkStatus();
}

absl::Status PushedSource::FillBlock() {
  while (!is_ended_ && block_offset_ == block_.size()) {
    block_.clear();
    block_offset_ = 0;
    DATASETD_ASSIGN_OR_RETURN(const bool has_block, next_block_(&block_));
    is_ended_ = !has_block;
  }
  return absl::OkStatus();
}

}  // namespace datasetd
