// Reads the orientation from an image's EXIF data.

#ifndef DATASETD_SERVER_READERS_IMAGES_EXIF_ORIENTATION_H_
#define DATASETD_SERVER_READERS_IMAGES_EXIF_ORIENTATION_H_

#include <cstdint>

#include "absl/types/span.h"

namespace datasetd {

// `tiff` is the EXIF data from its TIFF header on. Returns 1 (no change) if
// there is no valid orientation.
int ExifOrientation(absl::Span<const uint8_t> tiff);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_EXIF_ORIENTATION_H_
