#include "server/readers/images/image_codec.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/readers/images/bmp_codec.h"
#include "server/readers/images/image_pixels.h"
#include "server/readers/images/jpeg_codec.h"
#include "server/readers/images/png_codec.h"

namespace datasetd {
namespace {

// Names other common formats, for the message.
const char* KindOf(absl::Span<const uint8_t> file) {
  const auto begins = [&](absl::string_view magic, size_t offset = 0) {
    return file.size() >= offset + magic.size() &&
           absl::string_view(
               reinterpret_cast<const char*>(file.data()) + offset,
               magic.size()) == magic;
  };
  if (begins("GIF8")) return "a GIF";
  if (begins("RIFF") && begins("WEBP", 8)) return "a WebP";
  if (begins("II*") || begins("MM")) return "a TIFF";
  if (begins("P5") || begins("P6")) return "a PNM";
  if (begins("ftyp", 4)) return "a HEIF or AVIF";
  return "of an unknown kind";
}

// The header before orientation; `at_least` is rotated to match.
absl::StatusOr<CodecHeader> ProbeCodec(absl::Span<const uint8_t> file,
                                       const ImageOptions& options,
                                       ImageSize at_least) {
  if (file.empty()) return absl::InvalidArgumentError("empty");
  if (IsPng(file)) return ProbePng(file, options.max_pixels);
  if (IsBmp(file)) return ProbeBmp(file, options.max_pixels);
  if (!IsJpeg(file)) {
    return absl::InvalidArgumentError(
        absl::StrCat(KindOf(file), ", expected a JPEG, PNG or BMP image"));
  }
  DATASETD_ASSIGN_OR_RETURN(CodecHeader header,
                            ProbeJpeg(file, at_least, options.max_pixels));
  if (options.apply_exif && SwapsAxes(header.orientation)) {
    std::swap(at_least.height, at_least.width);
    return ProbeJpeg(file, at_least, options.max_pixels);
  }
  return header;
}

absl::Status DecodeCodec(absl::Span<const uint8_t> file, ImageSize at_least,
                         int channels, bool keeps_classes,
                         absl::Span<uint8_t> pixels) {
  if (keeps_classes && !HoldsClasses(file)) {
    return absl::InvalidArgumentError(
        "a mask is a PNG with one channel of up to 8 bits or with a palette");
  }
  if (IsPng(file)) return DecodePng(file, channels, keeps_classes, pixels);
  if (IsBmp(file)) return DecodeBmp(file, channels, pixels);
  return DecodeJpeg(file, at_least, channels, pixels);
}

int ResultChannels(const CodecHeader& header, const ImageOptions& options) {
  return options.channels == 0 ? header.channels : options.channels;
}

int64_t ResultBytes(const CodecHeader& header, const ImageOptions& options) {
  return header.size.height * header.size.width *
         ResultChannels(header, options);
}

bool IsTurned(const CodecHeader& header, const ImageOptions& options) {
  return options.apply_exif && header.orientation != 1;
}

}  // namespace

absl::StatusOr<ImageHeader> ProbeImage(absl::Span<const uint8_t> file,
                                       const ImageOptions& options,
                                       ImageSize at_least) {
  if (!options.fast_decode) at_least = {};
  DATASETD_ASSIGN_OR_RETURN(const CodecHeader codec,
                            ProbeCodec(file, options, at_least));
  ImageHeader header;
  header.size = codec.size;
  header.channels = ResultChannels(codec, options);
  header.has_unapplied_exif = codec.orientation != 1 && !options.apply_exif;
  header.decode_bytes = codec.working_bytes + ResultBytes(codec, options);
  if (IsTurned(codec, options)) {
    header.decode_bytes += ResultBytes(codec, options);
    if (SwapsAxes(codec.orientation)) {
      std::swap(header.size.height, header.size.width);
    }
  }
  return header;
}

absl::Status DecodeImage(absl::Span<const uint8_t> file,
                         const ImageOptions& options, ImageSize at_least,
                         absl::Span<uint8_t> pixels) {
  if (!options.fast_decode) at_least = {};
  DATASETD_ASSIGN_OR_RETURN(const CodecHeader codec,
                            ProbeCodec(file, options, at_least));
  const int channels = ResultChannels(codec, options);
  if (!IsTurned(codec, options)) {
    return DecodeCodec(file, at_least, channels, options.keeps_classes, pixels);
  }
  if (ResultBytes(codec, options) != static_cast<int64_t>(pixels.size())) {
    return absl::InternalError(absl::StrCat("an image of ", codec.size.width,
                                            "x", codec.size.height, " into ",
                                            pixels.size(), " bytes"));
  }
  if (SwapsAxes(codec.orientation)) {
    std::swap(at_least.height, at_least.width);
  }
  std::vector<uint8_t> unturned(pixels.size());
  DATASETD_RETURN_IF_ERROR(DecodeCodec(file, at_least, channels,
                                       options.keeps_classes,
                                       absl::MakeSpan(unturned)));
  OrientPixels(unturned.data(), codec.size, channels, codec.orientation,
               pixels.data());
  return absl::OkStatus();
}

}  // namespace datasetd
