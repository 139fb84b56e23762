// Decodes BMP: palettes of 1, 4 and 8 bits, and 16, 24 and 32 bits per pixel,
// uncompressed. Part of image_codec.h.

#ifndef DATASETD_SERVER_READERS_IMAGES_BMP_CODEC_H_
#define DATASETD_SERVER_READERS_IMAGES_BMP_CODEC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/readers/images/image_pixels.h"

namespace datasetd {

bool IsBmp(absl::Span<const uint8_t> file);

// Also checks that the file has all of its rows.
absl::StatusOr<CodecHeader> ProbeBmp(absl::Span<const uint8_t> file,
                                     int64_t max_pixels);

// `pixels` has ProbeBmp's size with `channels` channels.
absl::Status DecodeBmp(absl::Span<const uint8_t> file, int channels,
                       absl::Span<uint8_t> pixels);

}  // namespace datasetd

#endif  // DATASETD_SERVER_READERS_IMAGES_BMP_CODEC_H_
