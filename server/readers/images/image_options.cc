#include "server/readers/images/image_options.h"

#include <string>

#include "absl/strings/numbers.h"
#include "base/status_macros.h"
#include "server/readers/option_values.h"

namespace datasetd {
namespace {

// Does not change `result` if the option is not set.
absl::Status ParseBool(const v1::DatasetSpec& spec, const char* name,
                       bool* result) {
  const std::string* const value = FindOption(spec, name);
  if (value != nullptr && !absl::SimpleAtob(*value, result)) {
    return WrongOption(name, *value, "true or false");
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
      return WrongOption("channels", *channels, "1, 3, 4 or as_is");
    }
  }
  DATASETD_RETURN_IF_ERROR(ParseBool(spec, "apply_exif", &options.apply_exif));
  DATASETD_RETURN_IF_ERROR(
      ParseBool(spec, "fast_decode", &options.fast_decode));
  DATASETD_ASSIGN_OR_RETURN(
      options.max_pixels,
      IntOption(spec, "max_pixels", options.max_pixels, 1, kMaxMaxPixels));
  return options;
}

}  // namespace datasetd
