// Decodes PNG with libpng. Part of image_codec.h.

#ifndef DATASETD_SERVER_READERS_IMAGES_PNG_CODEC_H_
#define DATASETD_SERVER_READERS_IMAGES_PNG_CODEC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/readers/images/image_pixels.h"

namespace datasetd {

bool IsPng(absl::Span<const uint8_t> file);

absl::StatusOr<CodecHeader> ProbePng(absl::Span<const uint8_t> file,
                                     int64_t max_pixels);

// `pixels` has ProbePng's size with `channels` channels.
absl::Status DecodePng(absl::Span<const uint8_t> file, int channels,
                       absl::Span<uint8_t> pixels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_PNG_CODEC_H_
