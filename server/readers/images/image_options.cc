#include "server/readers/images/image_options.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

absl::Status Wrong(absl::string_view name, const std::string& value,
                   absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("option ", name, " is '", absl::Utf8SafeCHexEscape(value),
                   "', expected ", expected));
}

// Does not change `result` if the option is not set.
absl::Status ParseBool(const SourceSpec& spec, const char* name, bool* result) {
  const auto option = spec.options.find(name);
  if (option == spec.options.end()) return absl::OkStatus();
  if (!absl::SimpleAtob(option->second, result)) {
    return Wrong(name, option->second, "true or false");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImageOptions> ParseImageOptions(const SourceSpec& spec) {
  ImageOptions options;
  const auto channels = spec.options.find("channels");
  if (channels != spec.options.end()) {
    if (channels->second == "as_is") {
      options.channels = 0;
    } else if (!absl::SimpleAtoi(channels->second, &options.channels) ||
               (options.channels != 1 && options.channels != 3 &&
                options.channels != 4)) {
      return Wrong("channels", channels->second, "1, 3, 4 or as_is");
    }
  }
  DATASETD_RETURN_IF_ERROR(ParseBool(spec, "apply_exif", &options.apply_exif));
  DATASETD_RETURN_IF_ERROR(
      ParseBool(spec, "fast_decode", &options.fast_decode));
  const auto max_pixels = spec.options.find("max_pixels");
  if (max_pixels != spec.options.end() &&
      (!absl::SimpleAtoi(max_pixels->second, &options.max_pixels) ||
       options.max_pixels < 1 || options.max_pixels > kMaxMaxPixels)) {
    return Wrong("max_pixels", max_pixels->second,
                 absl::StrCat("1 to ", kMaxMaxPixels));
  }
  return options;
}

}  // namespace datasetd
