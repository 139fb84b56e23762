// JPEG by libjpeg-turbo. See image_codec.h, of which this is a part.

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

// `at_least`: the size that a smaller image must have; 0 x 0 is full size. The
// orientation is not yet applied to either.
absl::StatusOr<CodecHeader> ProbeJpeg(absl::Span<const uint8_t> file,
                                      ImageSize at_least, int64_t max_pixels);

// `pixels` is as large as ProbeJpeg's size of `channels` for the same
// arguments.
absl::Status DecodeJpeg(absl::Span<const uint8_t> file, ImageSize at_least,
                        int channels, absl::Span<uint8_t> pixels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_JPEG_CODEC_H_
