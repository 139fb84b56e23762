#include "server/readers/images/encoded_field.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/readers/images/image_codec.h"
#include "server/readers/images/png_codec.h"
#include "server/readers/mask_names.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

constexpr size_t kMaxNumberBytes = 64;

absl::StatusOr<int64_t> ParseNumber(absl::Span<const uint8_t> bytes) {
  const absl::string_view text(reinterpret_cast<const char*>(bytes.data()),
                               bytes.size());
  int64_t value = 0;
  if (text.size() <= kMaxNumberBytes && absl::SimpleAtoi(text, &value)) {
    return value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::Utf8SafeCHexEscape(text.substr(0, 40)),
                   "', expected a whole number"));
}

// Marks [H, W, C] arrays that can be images; [H, W] becomes [H, W, 1].
void MarkImage(FieldSpec& spec) {
  if (spec.dtype != Dtype::kUint8) return;
  if (spec.shape.size() == 2) spec.shape.push_back(1);
  spec.is_image = spec.shape.size() == 3 && spec.shape[2] <= kMaxImageChannels;
  spec.is_mask =
      spec.is_image && (spec.name == "mask" ||
                        (spec.shape[2] == 1 && IsMaskName(spec.name, {})));
}

}  // namespace

absl::StatusOr<EncodedField> EncodedField::Make(const std::string& name,
                                                Kind kind,
                                                absl::Span<const uint8_t> bytes,
                                                const ImageOptions& options) {
  EncodedField field;
  field.kind_ = kind;
  field.options_ = options;
  field.spec_.name = name;
  switch (kind) {
    case Kind::kImage: {
      field.may_be_mask_ = HoldsClasses(bytes);
      if (IsMaskName(name, {})) {
        field.spec_.is_mask = true;
        field.options_.channels = 1;
        field.options_.keeps_classes = true;
      }
      DATASETD_RETURN_IF_ERROR(field.CheckMask(bytes));
      DATASETD_ASSIGN_OR_RETURN(const ImageHeader header,
                                ProbeImage(bytes, field.options_));
      field.spec_.dtype = Dtype::kUint8;
      field.spec_.shape = {header.size.height, header.size.width,
                           header.channels};
      field.spec_.is_image = true;
      field.spec_.is_ragged = true;
      return field;
    }
    case Kind::kNumber:
      DATASETD_RETURN_IF_ERROR(ParseNumber(bytes).status());
      field.spec_.dtype = Dtype::kInt64;
      return field;
    case Kind::kNpy:
      break;
  }
  DATASETD_ASSIGN_OR_RETURN(const NpyHeader header,
                            ParseNpy(bytes, NpyArray::kOneSample));
  if (header.data_bytes > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError("an array of more than 2 GiB");
  }
  field.spec_.dtype = header.dtype;
  field.spec_.shape = header.shape;
  field.is_bool_ = header.is_bool;
  MarkImage(field.spec_);
  return field;
}

bool EncodedField::KeepClasses(bool is_certain) {
  if (kind_ != Kind::kImage) return spec_.is_mask;
  if (is_certain || may_be_mask_) {
    spec_.is_mask = true;
    spec_.shape[2] = 1;
    options_.channels = 1;
    options_.keeps_classes = true;
  }
  return spec_.is_mask;
}

absl::Status EncodedField::Probe(absl::Span<const uint8_t> bytes,
                                 ImageSize at_least, SampleProbe& probe) const {
  if (kind_ != Kind::kImage) {
    DATASETD_RETURN_IF_ERROR(kind_ == Kind::kNumber
                                 ? ParseNumber(bytes).status()
                                 : CheckedHeader(bytes).status());
    probe.decode_bytes += spec_.sample_bytes();
    return absl::OkStatus();
  }
  DATASETD_RETURN_IF_ERROR(CheckMask(bytes));
  DATASETD_ASSIGN_OR_RETURN(const ImageHeader header,
                            ProbeImage(bytes, options_, at_least));
  if (header.channels != spec_.shape[2]) {
    return absl::InvalidArgumentError(
        absl::StrCat("field '", spec_.name, "': ", header.channels,
                     " channels, and the first image has ", spec_.shape[2],
                     "; give the option channels=1, 3 or 4"));
  }
  probe.sizes.push_back(header.size);
  probe.decode_bytes += header.decode_bytes;
  probe.has_unapplied_exif |= header.has_unapplied_exif;
  return absl::OkStatus();
}

absl::Status EncodedField::CheckMask(absl::Span<const uint8_t> bytes) const {
  if (!spec_.is_mask || HoldsClasses(bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "field '", spec_.name,
      "': a mask is a PNG with one channel of up to 8 bits or with a palette, "
      "whose values are the classes; this is another, which would be "
      "converted: store it as such, or its values as .npy, or name it "
      "otherwise if it is no mask"));
}

absl::StatusOr<NpyHeader> EncodedField::CheckedHeader(
    absl::Span<const uint8_t> bytes) const {
  DATASETD_ASSIGN_OR_RETURN(NpyHeader header,
                            ParseNpy(bytes, NpyArray::kOneSample));
  FieldSpec spec = {.dtype = header.dtype, .shape = header.shape};
  MarkImage(spec);
  if (spec.dtype == spec_.dtype && spec.shape == spec_.shape &&
      header.is_bool == is_bool_) {
    return header;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("field '", spec_.name, "' is ", DtypeName(spec.dtype), " ",
                   ShapeText(spec.shape), ", and that of the first sample ",
                   DtypeName(spec_.dtype), " ", ShapeText(spec_.shape)));
}

absl::Status EncodedField::Decode(absl::Span<const uint8_t> bytes,
                                  ImageSize at_least,
                                  absl::Span<uint8_t> result) const {
  switch (kind_) {
    case Kind::kImage:
      return DecodeImage(bytes, options_, at_least, result);
    case Kind::kNumber: {
      DATASETD_ASSIGN_OR_RETURN(const int64_t value, ParseNumber(bytes));
      memcpy(result.data(), &value, sizeof(value));
      return absl::OkStatus();
    }
    case Kind::kNpy:
      break;
  }
  DATASETD_ASSIGN_OR_RETURN(const NpyHeader header, CheckedHeader(bytes));
  bytes.remove_prefix(static_cast<size_t>(header.data_offset));
  if (is_bool_ && std::any_of(bytes.begin(), bytes.end(),
                              [](uint8_t value) { return value > 1; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("field '", spec_.name, "': a bool that is not 0 or 1"));
  }
  if (bytes.size() != result.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("field '", spec_.name, "': ", bytes.size(),
                     " bytes, expected ", result.size()));
  }
  std::copy(bytes.begin(), bytes.end(), result.begin());
  return absl::OkStatus();
}

}  // namespace datasetd
