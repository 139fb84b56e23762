#include "server/readers/npy_fields.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cuda/status_macros.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

constexpr int64_t kMaxImageChannels = 4;

bool IsNamedAsImage(absl::string_view name) {
  return name == "image" || name == "mask";
}

bool IsImageByDefault(absl::string_view name, const NpyHeader& header) {
  const std::vector<int64_t>& shape = header.shape;
  if (shape.size() == 3) {
    return IsNamedAsImage(name) || header.dtype == Dtype::kUint8;
  }
  return shape.size() == 4 &&
         (IsNamedAsImage(name) || shape.back() <= kMaxImageChannels);
}

absl::StatusOr<FieldSpec> MakeFieldSpec(const std::string& path,
                                        const std::string& name,
                                        const NpyHeader& header,
                                        bool is_image) {
  const std::string shape_text =
      absl::StrCat("(", absl::StrJoin(header.shape, ", "), ")");
  FieldSpec spec = {
      .name = name,
      .dtype = header.dtype,
      .shape = {header.shape.begin() + 1, header.shape.end()},
      .is_image = is_image,
  };
  if (spec.num_elements() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": shape ", shape_text,
                     ": more than 2^31 - 1 elements a sample"));
  }
  if (!is_image) return spec;
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

}  // namespace

absl::StatusOr<std::map<std::string, bool>> ParseImagesOption(
    const SourceSpec& spec) {
  std::map<std::string, bool> images;
  const auto option = spec.options.find(std::string(kImagesOption));
  if (option == spec.options.end()) return images;
  for (absl::string_view item : absl::StrSplit(option->second, ',')) {
    item = absl::StripAsciiWhitespace(item);
    const bool is_image = !absl::ConsumePrefix(&item, "-");
    if (!IsFieldName(item) ||
        !images.emplace(std::string(item), is_image).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          "option images is '", absl::Utf8SafeCHexEscape(option->second),
          "', expected a comma-separated list of fields, each once, with a "
          "minus before those that are not images"));
    }
  }
  return images;
}

absl::StatusOr<FieldSpec> MakeNpyField(
    const std::string& where, const std::string& name, const NpyHeader& header,
    const std::map<std::string, bool>& images) {
  if (!IsFieldName(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": '", absl::Utf8SafeCHexEscape(name),
        "' cannot name a field: expected a letter or _, then letters, digits "
        "or _, at most 64"));
  }
  const auto option = images.find(name);
  const bool is_image = option != images.end()
                            ? option->second
                            : IsImageByDefault(name, header);
  return MakeFieldSpec(where, name, header, is_image);
}

absl::Status CheckBools(const std::string& where, const FieldSpec& field,
                        int64_t first_sample,
                        absl::Span<const uint8_t> values) {
  const auto bad = std::find_if(values.begin(), values.end(),
                                [](uint8_t value) { return value > 1; });
  if (bad == values.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": sample ",
      first_sample + (bad - values.begin()) / field.sample_bytes(),
      ": a bool of value ", *bad, ", expected 0 or 1"));
}

}  // namespace datasetd
