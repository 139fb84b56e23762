// The orientation that a camera wrote into an image's EXIF data.

#ifndef DATASETD_SERVER_READERS_IMAGES_EXIF_ORIENTATION_H_
#define DATASETD_SERVER_READERS_IMAGES_EXIF_ORIENTATION_H_

#include <cstdint>

#include "absl/types/span.h"

namespace datasetd {

// `tiff` is EXIF data from its TIFF header on. 1, which changes nothing, where
// there is no orientation, or one that is none.
int ExifOrientation(absl::Span<const uint8_t> tiff);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_EXIF_ORIENTATION_H_
