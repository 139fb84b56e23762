// Decodes JPEG, PNG and BMP, told by their first bytes, to uint8 [H, W, C].
//
// Pixels are those of PIL's Image.open(...).convert(...): JPEG by the same
// library with the same settings (exact inverse transform, smooth chroma), PNG
// palettes and low bit depths expanded, transparency dropped where the result
// has none, CMYK as Adobe writes it. Two things differ: of 16 bits a channel
// the upper 8 are taken, for grey images too, and a file whose pixels are
// damaged is refused where PIL would pad it.
//
// Memory: what ImageHeader::decode_bytes says, whatever the file declares.
// Thread-safe. Errors, without the file's name:
//   INVALID_ARGUMENT  not one of the formats, a kind of it that is not decoded,
//                     or more pixels than ImageOptions::max_pixels
//   DATA_LOSS         truncated or damaged

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_CODEC_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_CODEC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/sample_source.h"
#include "server/readers/images/image_options.h"

namespace datasetd {

struct ImageHeader {
  // Of the result: after orientation, scaling and conversion.
  ImageSize size;
  int channels = 0;
  // The most that DecodeImage holds at once, its result included.
  int64_t decode_bytes = 0;

  int64_t result_bytes() const { return size.height * size.width * channels; }
};

// Reads the header alone. `at_least`: where options.fast_decode is set, a JPEG
// is decoded at the smallest of 1/1, 1/2, 1/4, 1/8 of its size that is as large
// as this in both directions; 0 x 0 is no such wish.
absl::StatusOr<ImageHeader> ProbeImage(absl::Span<const uint8_t> file,
                                       const ImageOptions& options,
                                       ImageSize at_least = {});

// Decodes to `pixels`, whose size is ProbeImage's result_bytes() for the same
// arguments. What it holds after an error is unspecified.
absl::Status DecodeImage(absl::Span<const uint8_t> file,
                         const ImageOptions& options, ImageSize at_least,
                         absl::Span<uint8_t> pixels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_CODEC_H_
