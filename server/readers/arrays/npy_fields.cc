#include "server/readers/arrays/npy_fields.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "server/readers/mask_names.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

bool IsNamedAsImage(absl::string_view name) {
  return name == "image" || name == "mask";
}

bool IsImageByDefault(absl::string_view name, const NpyHeader& header) {
  const std::vector<int64_t>& shape = header.shape;
  if (!IsImageDtype(header.dtype)) return false;
  if (shape.size() == 3) {
    return IsNamedAsImage(name) || header.dtype == Dtype::kUint8;
  }
  return shape.size() == 4 &&
         (IsNamedAsImage(name) || shape.back() <= kMaxImageChannels);
}

absl::StatusOr<FieldSpec> MakeFieldSpec(const std::string& path,
                                        const std::string& name,
                                        const NpyHeader& header, bool is_image,
                                        bool is_mask) {
  const std::string shape_text = ShapeText(header.shape);
  FieldSpec spec = {
      .name = name,
      .dtype = header.dtype,
      .shape = {header.shape.begin() + 1, header.shape.end()},
      .is_image = is_image,
      .is_mask = is_mask,
  };
  if (spec.num_elements() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": shape ", shape_text,
                     ": more than 2^31 - 1 elements a sample"));
  }
  if (!is_image) return spec;
  if (!IsImageDtype(spec.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": images are uint8, float16, bfloat16 or float32, not ",
        DtypeName(spec.dtype),
        "; convert the array, or do not name it in the options images and "
        "masks"));
  }
  if (spec.shape.size() == 2) {
    spec.shape.resize(3, 1);
    return spec;
  }
  if (spec.shape.size() == 3 && spec.shape.back() <= kMaxImageChannels) {
    return spec;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": shape ", shape_text,
      ", expected an image as (N, H, W) or (N, H, W, C) with C of 1 to ",
      kMaxImageChannels,
      "; move the channels last, or say that it is no image with the option "
      "images=-",
      name));
}

absl::StatusOr<std::map<std::string, bool>> ParseChoice(
    const v1::DatasetSpec& spec, absl::string_view option_name) {
  std::map<std::string, bool> choice;
  const std::string* const option = FindOption(spec, option_name);
  if (option == nullptr) return choice;
  for (absl::string_view item : absl::StrSplit(*option, ',')) {
    item = absl::StripAsciiWhitespace(item);
    const bool is_chosen = !absl::ConsumePrefix(&item, "-");
    if (!IsFieldName(item) ||
        !choice.emplace(std::string(item), is_chosen).second) {
      return WrongOption(option_name, *option,
                         "a comma-separated list of fields, each once, with a "
                         "minus before those that are not ",
                         option_name);
    }
  }
  return choice;
}

}  // namespace

absl::StatusOr<ImageChoices> ParseImageChoices(const v1::DatasetSpec& spec) {
  ImageChoices choices;
  DATASETD_ASSIGN_OR_RETURN(choices.images, ParseChoice(spec, kImagesOption));
  DATASETD_ASSIGN_OR_RETURN(choices.masks, ParseChoice(spec, kMasksOption));
  return choices;
}

absl::StatusOr<FieldSpec> MakeNpyField(const std::string& where,
                                       const std::string& name,
                                       const NpyHeader& header,
                                       ImageChoices& choices) {
  if (!IsFieldName(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": '", absl::Utf8SafeCHexEscape(name),
        "' cannot name a field: expected a letter or _, then letters, digits "
        "or _, at most 64"));
  }
  const auto image = choices.images.extract(name);
  const auto mask = choices.masks.extract(name);
  const bool is_named_mask = !mask.empty() && mask.mapped();
  if (is_named_mask && !image.empty() && !image.mapped()) {
    return absl::InvalidArgumentError(
        absl::StrCat("options images and masks contradict each other about '",
                     name, "': a mask is an image"));
  }
  const bool is_image =
      is_named_mask ||
      (!image.empty() ? image.mapped() : IsImageByDefault(name, header));
  const bool is_mask = !mask.empty() ? mask.mapped() : name == "mask";
  return MakeFieldSpec(where, name, header, is_image, is_image && is_mask);
}

void MarkMasks(const ImageChoices& choices, std::vector<FieldSpec>& fields) {
  for (size_t f = 0; f < fields.size(); ++f) {
    FieldSpec& field = fields[f];
    if (!field.is_image || field.is_mask || field.shape[2] != 1 ||
        choices.masks.count(field.name) > 0 ||
        choices.images.count(field.name) > 0) {
      continue;
    }
    field.is_mask = IsMaskName(
        field.name, {.is_bytes = field.dtype == Dtype::kUint8,
                     .is_beside_colours = HasOtherColours(fields, f)});
  }
}

absl::Status CheckAllTaken(const ImageChoices& choices,
                           const std::string& path) {
  const bool is_image = !choices.images.empty();
  if (!is_image && choices.masks.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "option ", is_image ? kImagesOption : kMasksOption, " names '",
      (is_image ? choices.images : choices.masks).begin()->first,
      "', which is no field of ", path));
}

absl::Status CheckBools(const std::string& where, const FieldSpec& field,
                        int64_t first_sample,
                        absl::Span<const uint8_t> values) {
  const auto bad = std::find_if(values.begin(), values.end(),
                                [](uint8_t value) { return value > 1; });
  if (bad == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": sample ",
                   first_sample + (bad - values.begin()) / field.sample_bytes(),
                   ": a bool of value ", *bad, ", expected 0 or 1"));
}

}  // namespace datasetd
