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

// True for a PNG of one channel of up to 8 bits, or of a palette: its values
// can be those of a mask.
bool HoldsClasses(absl::Span<const uint8_t> file);

// `pixels` has ProbePng's size with `channels` channels; with `keeps_classes`
// one, for the values of the file.
//   REQUIRES: HoldsClasses(file) with `keeps_classes`
absl::Status DecodePng(absl::Span<const uint8_t> file, int channels,
                       bool keeps_classes, absl::Span<uint8_t> pixels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_PNG_CODEC_H_
