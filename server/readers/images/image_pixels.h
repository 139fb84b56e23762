// What the codecs of images share: 8-bit pixels of 1 grey, 2 grey + alpha, 3
// RGB, 4 RGB + alpha, and the conversions between them, which are PIL's.

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_PIXELS_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_PIXELS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "server/dataset/sample_source.h"

namespace datasetd {

// What a file's header says, before conversion and orientation.
struct CodecHeader {
  ImageSize size;
  int channels = 0;
  int orientation = 1;  // of EXIF, 1..8
  // Held by the codec while it decodes, the result not included.
  int64_t working_bytes = 0;
};

// True where 5..8 turn height into width.
inline bool SwapsAxes(int orientation) { return orientation >= 5; }

// `count` pixels; 2 channels come from 2 alone.
void ConvertPixels(const uint8_t* from, int from_channels, int64_t count,
                   uint8_t* to, int to_channels);

// Turns an image of `size`, as EXIF's `orientation` asks. `to` is as large as
// `from` and does not overlap it.
void OrientPixels(const uint8_t* from, ImageSize size, int channels,
                  int orientation, uint8_t* to);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_PIXELS_H_
