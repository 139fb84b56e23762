// The options shared by all readers of encoded images; see docs/readers.md.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_OPTIONS_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_OPTIONS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/readers/reader.h"

namespace datasetd {

struct ImageOptions {
  int channels = 3;  // 0: unchanged
  bool apply_exif = false;
  bool fast_decode = false;
  int64_t max_pixels = 89'478'485;
  // A mask's: one channel, of the values of a grey PNG or the indices of its
  // palette. Not an option of a request.
  bool keeps_classes = false;
};

// Four channels of this many pixels have fewer than 2^31 elements.
inline constexpr int64_t kMaxMaxPixels = (int64_t{1} << 29) - 1;

inline constexpr absl::string_view kImageOptionNames[] = {
    "apply_exif", "channels", "fast_decode", "max_pixels"};

//   INVALID_ARGUMENT  an invalid value
absl::StatusOr<ImageOptions> ParseImageOptions(const v1::DatasetSpec& spec);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_OPTIONS_H_
