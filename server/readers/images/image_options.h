// The options that all readers of encoded images share.
//
//   channels     3 (default), 1, 4, or as_is: as the first image has them
//   apply_exif   true turns images as their EXIF orientation says; false is
//                what torchvision's loaders do
//   fast_decode  true decodes a JPEG at 1/2, 1/4 or 1/8 where a pretransform
//                makes it smaller than that anyway: faster, other pixels
//   max_pixels   an image that declares more is refused; 89478485, as PIL warns

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_OPTIONS_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_OPTIONS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/readers/reader.h"

namespace datasetd {

struct ImageOptions {
  int channels = 3;  // 0: as it is
  bool apply_exif = false;
  bool fast_decode = false;
  int64_t max_pixels = 89'478'485;
};

// Four channels of so many have below 2^31 elements.
inline constexpr int64_t kMaxMaxPixels = (int64_t{1} << 29) - 1;

inline constexpr absl::string_view kImageOptionNames[] = {
    "apply_exif", "channels", "fast_decode", "max_pixels"};

//   INVALID_ARGUMENT  a value that the option cannot have
absl::StatusOr<ImageOptions> ParseImageOptions(const SourceSpec& spec);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_OPTIONS_H_
