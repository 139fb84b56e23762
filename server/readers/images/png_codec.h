// PNG by libpng. See image_codec.h, of which this is a part.

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

// `pixels` is as large as ProbePng's size of `channels`.
absl::Status DecodePng(absl::Span<const uint8_t> file, int channels,
                       absl::Span<uint8_t> pixels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_PNG_CODEC_H_
