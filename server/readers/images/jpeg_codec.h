// Decodes JPEG with libjpeg-turbo. Part of image_codec.h.

#ifndef DATASETD_SERVER_READERS_IMAGES_JPEG_CODEC_H_
#define DATASETD_SERVER_READERS_IMAGES_JPEG_CODEC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/dataset/sample_source.h"
#include "server/readers/images/image_pixels.h"

namespace datasetd {

bool IsJpeg(absl::Span<const uint8_t> file);

// `at_least`: minimum size of a reduced image; 0 x 0: full size. Sizes are
// before orientation.
absl::StatusOr<CodecHeader> ProbeJpeg(absl::Span<const uint8_t> file,
                                      ImageSize at_least, int64_t max_pixels);

// `pixels` has ProbeJpeg's size for the same arguments, with `channels`
// channels.
absl::Status DecodeJpeg(absl::Span<const uint8_t> file, ImageSize at_least,
                        int channels, absl::Span<uint8_t> pixels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_JPEG_CODEC_H_
