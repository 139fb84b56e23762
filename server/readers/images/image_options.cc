#include "server/readers/images/image_options.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

absl::Status Wrong(absl::string_view name, const std::string& value,
                   absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("option ", name, " is '", absl::Utf8SafeCHexEscape(value),
                   "', expected ", expected));
}

// Does not change `result` if the option is not set.
absl::Status ParseBool(const v1::DatasetSpec& spec, const char* name,
                       bool* result) {
  const std::string* const value = FindOption(spec, name);
  if (value != nullptr && !absl::SimpleAtob(*value, result)) {
    return Wrong(name, *value, "true or false");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImageOptions> ParseImageOptions(const v1::DatasetSpec& spec) {
  ImageOptions options;
  const std::string* const channels = FindOption(spec, "channels");
  if (channels != nullptr) {
    if (*channels == "as_is") {
      options.channels = 0;
    } else if (!absl::SimpleAtoi(*channels, &options.channels) ||
               (options.channels != 1 && options.channels != 3 &&
                options.channels != 4)) {
      return Wrong("channels", *channels, "1, 3, 4 or as_is");
    }
  }
  DATASETD_RETURN_IF_ERROR(ParseBool(spec, "apply_exif", &options.apply_exif));
  DATASETD_RETURN_IF_ERROR(
      ParseBool(spec, "fast_decode", &options.fast_decode));
  const std::string* const max_pixels = FindOption(spec, "max_pixels");
  if (max_pixels != nullptr &&
      (!absl::SimpleAtoi(*max_pixels, &options.max_pixels) ||
       options.max_pixels < 1 || options.max_pixels > kMaxMaxPixels)) {
    return Wrong("max_pixels", *max_pixels,
                 absl::StrCat("1 to ", kMaxMaxPixels));
  }
  return options;
}

}  // namespace datasetd
