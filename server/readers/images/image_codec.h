// Decodes JPEG, PNG and BMP to uint8 [H, W, C]. The format is detected from the
// first bytes.
//
// Pixels equal those of PIL's Image.open(...).convert(...): JPEG with the same
// library and settings (exact inverse transform, smooth chroma), PNG palettes
// and low bit depths expanded, transparency dropped if the result has no alpha,
// CMYK as written by Adobe. Two differences: 16-bit channels keep their upper 8
// bits, also in grey images, and a file with damaged pixels is refused where
// PIL would pad it.
//
// Memory: at most ImageHeader::decode_bytes, whatever the file declares.
// Thread-safe. Errors omit the file name:
//   INVALID_ARGUMENT    another format, an unsupported variant, or more pixels
//                       than ImageOptions::max_pixels
//   DATA_LOSS           truncated or damaged
//   RESOURCE_EXHAUSTED  the codec got no memory

#ifndef DATASETD_SERVER_READERS_IMAGES_IMAGE_CODEC_H_
#define DATASETD_SERVER_READERS_IMAGES_IMAGE_CODEC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/sample_source.h"
#include "server/readers/images/image_options.h"

namespace datasetd {

// The size of the largest encoded image that readers accept.
inline constexpr uint32_t kMaxImageFileBytes = 256 << 20;

struct ImageHeader {
  // Size of the result, after orientation, scaling and conversion.
  ImageSize size;
  int channels = 0;
  // The file has an EXIF orientation, which the result does not have.
  bool has_unapplied_exif = false;
  // Peak memory of DecodeImage, including its result.
  int64_t decode_bytes = 0;

  int64_t result_bytes() const { return size.height * size.width * channels; }
};

// Parses the header only. With options.fast_decode, a JPEG is decoded at the
// smallest of 1/1, 1/2, 1/4, 1/8 of its size that is not below `at_least` in
// either direction; 0 x 0: full size.
absl::StatusOr<ImageHeader> ProbeImage(absl::Span<const uint8_t> file,
                                       const ImageOptions& options,
                                       ImageSize at_least = {});

// Decodes to `pixels`, whose size is ProbeImage's result_bytes() for the same
// arguments. On error its content is unspecified.
absl::Status DecodeImage(absl::Span<const uint8_t> file,
                         const ImageOptions& options, ImageSize at_least,
                         absl::Span<uint8_t> pixels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_IMAGE_CODEC_H_
