// The options shared by all readers of encoded images.
//
//   channels     3 (default), 1, 4, or as_is: those of the first image
//   apply_exif   true rotates images by their EXIF orientation; false (as
//                torchvision's loaders) does not
//   fast_decode  true decodes a JPEG at 1/2, 1/4 or 1/8 if a pretransform
//                shrinks it anyway: faster, but with other pixels
//   max_pixels   images that declare more are refused; 89478485, PIL's warning
//                limit

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
};

// Four channels of this many pixels have fewer than 2^31 elements.
inline constexpr int64_t kMaxMaxPixels = (int64_t{1} << 29) - 1;

inline constexpr absl::string_view kImageOptionNames[] = {
    "apply_exif", "channels", "fast_decode", "max_pixels"};

//   INVALID_ARGUMENT  an invalid value
absl::StatusOr<ImageOptions> ParseImageOptions(const SourceSpec& spec);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_OPTIONS_H_
