// Common parts of the image codecs: 8-bit pixels of 1 (grey), 2 (grey + alpha),
// 3 (RGB) or 4 (RGB + alpha) channels, and PIL's conversions between them.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_PIXELS_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_PIXELS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/dataset/sample_source.h"

namespace datasetd {

// Facts from a file's header, before conversion and orientation.
struct CodecHeader {
  ImageSize size;
  int channels = 0;
  int orientation = 1;  // of EXIF, 1..8
  // Memory of the codec while decoding, without the result.
  int64_t working_bytes = 0;
};

// True if the orientation swaps height and width (5..8).
inline bool SwapsAxes(int orientation) { return orientation >= 5; }

// INVALID_ARGUMENT if a file declares more than `max_pixels`.
absl::Status CheckPixels(int64_t width, int64_t height, int64_t max_pixels);

// Converts `count` pixels; 2 channels are made from 2 only.
void ConvertPixels(const uint8_t* from, int from_channels, int64_t count,
                   uint8_t* to, int to_channels);

// Rotates or mirrors an image of `size` by EXIF `orientation`. `to` is as large
// as `from` and does not overlap it.
void OrientPixels(const uint8_t* from, ImageSize size, int channels,
                  int orientation, uint8_t* to);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_PIXELS_H_
