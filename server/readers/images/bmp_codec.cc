#include "server/readers/images/bmp_codec.h"

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/checked_math.h"
#include "base/status_macros.h"

namespace datasetd {
namespace {

// Sizes of the file header, and of the oldest and the usual image header.
constexpr int64_t kFileHeaderBytes = 14;
constexpr int64_t kCoreHeaderBytes = 12;
constexpr int64_t kInfoHeaderBytes = 40;
constexpr uint32_t kUncompressed = 0;
constexpr uint32_t kBitFields = 3;

uint32_t LittleEndian(absl::Span<const uint8_t> bytes, int64_t offset,
                      int count) {
  uint32_t value = 0;
  for (int i = count; i-- > 0;) {
    value = value << 8 | bytes[static_cast<size_t>(offset + i)];
  }
  return value;
}

// The bits of one colour in a pixel of 16 or 32 bits.
struct Mask {
  uint32_t bits = 0;
  int shift = 0;

  explicit Mask(uint32_t mask = 0) : bits(mask) {
    while (bits != 0 && (bits & 1) == 0) {
      bits >>= 1;
      ++shift;
    }
  }
  uint8_t Of(uint32_t pixel) const {
    return static_cast<uint8_t>(uint64_t{pixel >> shift & bits} * 255 / bits);
  }
  // True for one run of at most 8 bits.
  bool IsSound() const { return (bits & (bits + 1)) == 0 && bits <= 255; }
};

struct BmpHeader {
  int64_t width = 0;
  int64_t height = 0;
  bool is_top_down = false;
  int bits = 0;
  int64_t pixels_offset = 0;
  int64_t row_bytes = 0;
  int64_t palette_offset = 0;
  int64_t palette_entry_bytes = 4;
  int64_t num_colors = 0;
  bool is_grey = false;  // every colour of the palette is grey
  Mask red, green, blue, alpha;

  int channels() const { return is_grey ? 1 : alpha.bits != 0 ? 4 : 3; }
};

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("damaged BMP: ", what));
}

absl::Status ReadMasks(absl::Span<const uint8_t> file, uint32_t compression,
                       int64_t header_bytes, BmpHeader& header) {
  if (compression == kUncompressed) {
    const bool is_16 = header.bits == 16;
    header.red = Mask(is_16 ? 0x7C00 : 0xFF0000);
    header.green = Mask(is_16 ? 0x03E0 : 0x00FF00);
    header.blue = Mask(is_16 ? 0x001F : 0x0000FF);
    return absl::OkStatus();
  }
  // The masks follow the usual header; later headers start with them.
  const int64_t offset = kFileHeaderBytes + kInfoHeaderBytes;
  const bool has_alpha = header_bytes >= kInfoHeaderBytes + 16;
  if (static_cast<int64_t>(file.size()) < offset + (has_alpha ? 16 : 12)) {
    return Damaged("ends in its header");
  }
  header.red = Mask(LittleEndian(file, offset, 4));
  header.green = Mask(LittleEndian(file, offset + 4, 4));
  header.blue = Mask(LittleEndian(file, offset + 8, 4));
  if (has_alpha) header.alpha = Mask(LittleEndian(file, offset + 12, 4));
  for (const Mask& mask : {header.red, header.green, header.blue}) {
    if (mask.bits == 0 || !mask.IsSound()) {
      return absl::InvalidArgumentError(
          "a BMP whose bit masks are not of 1 to 8 bits is not decoded");
    }
  }
  if (!header.alpha.IsSound()) header.alpha = Mask();
  return absl::OkStatus();
}

absl::StatusOr<BmpHeader> ReadBmpHeader(absl::Span<const uint8_t> file) {
  const int64_t size = static_cast<int64_t>(file.size());
  if (size < kFileHeaderBytes + kCoreHeaderBytes) {
    return Damaged("ends in its header");
  }
  BmpHeader header;
  header.pixels_offset = LittleEndian(file, 10, 4);
  const int64_t header_bytes = LittleEndian(file, 14, 4);
  const bool is_core = header_bytes == kCoreHeaderBytes;
  if (!is_core && header_bytes < kInfoHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a BMP with a header of ", header_bytes, " bytes is not decoded"));
  }
  if (header_bytes > size - kFileHeaderBytes) {
    return Damaged("ends in its header");
  }
  uint32_t compression = kUncompressed;
  if (is_core) {
    header.width = LittleEndian(file, 18, 2);
    header.height = LittleEndian(file, 20, 2);
    header.bits = static_cast<int>(LittleEndian(file, 24, 2));
    header.palette_entry_bytes = 3;
  } else {
    header.width = static_cast<int32_t>(LittleEndian(file, 18, 4));
    header.height = static_cast<int32_t>(LittleEndian(file, 22, 4));
    header.bits = static_cast<int>(LittleEndian(file, 28, 2));
    compression = LittleEndian(file, 30, 4);
    header.num_colors = LittleEndian(file, 46, 4);
    header.is_top_down = header.height < 0;
    if (header.is_top_down) header.height = -header.height;
  }
  if (header.width < 1 || header.height < 1) {
    return Damaged(
        absl::StrCat("declares ", header.width, "x", header.height, " pixels"));
  }
  header.row_bytes = (header.width * header.bits + 31) / 32 * 4;
  const bool has_palette =
      header.bits == 1 || header.bits == 4 || header.bits == 8;
  const bool has_masks = header.bits == 16 || header.bits == 32;
  if ((!has_palette && !has_masks && header.bits != 24) ||
      (compression != kUncompressed &&
       !(compression == kBitFields && has_masks))) {
    return absl::InvalidArgumentError(
        absl::StrCat("a BMP of ", header.bits, " bits a pixel, compression ",
                     compression, ", is not decoded; save it uncompressed"));
  }
  if (has_masks) {
    DATASETD_RETURN_IF_ERROR(
        ReadMasks(file, compression, header_bytes, header));
  }
  if (has_palette) {
    const int64_t most = int64_t{1} << header.bits;
    if (header.num_colors == 0) header.num_colors = most;
    header.palette_offset = kFileHeaderBytes + header_bytes;
    if (header.num_colors > most ||
        header.num_colors * header.palette_entry_bytes >
            size - header.palette_offset) {
      return Damaged(absl::StrCat("declares a palette of ", header.num_colors));
    }
    header.is_grey = true;
    for (int64_t i = 0; i < header.num_colors; ++i) {
      const uint8_t* color =
          file.data() + header.palette_offset + i * header.palette_entry_bytes;
      header.is_grey &= color[0] == color[1] && color[1] == color[2];
    }
  }
  return header;
}

absl::Status CheckRows(absl::Span<const uint8_t> file,
                       const BmpHeader& header) {
  if (SaturatingAdd(header.pixels_offset,
                    SaturatingMultiply(header.row_bytes, header.height)) <=
      static_cast<int64_t>(file.size())) {
    return absl::OkStatus();
  }
  return Damaged(absl::StrCat(file.size(), " bytes, expected ", header.height,
                              " rows of ", header.row_bytes,
                              " bytes from offset ", header.pixels_offset));
}

// Decodes to RGB, RGB + alpha if there are bit masks for it, or grey.
absl::Status DecodeRow(absl::Span<const uint8_t> file, const BmpHeader& header,
                       const uint8_t* from, uint8_t* to) {
  const int channels = header.channels();
  for (int64_t x = 0; x < header.width; ++x, to += channels) {
    if (header.bits == 24) {
      to[0] = from[3 * x + 2];
      to[1] = from[3 * x + 1];
      to[2] = from[3 * x];
      continue;
    }
    if (header.bits >= 16) {
      const uint32_t pixel = LittleEndian(
          {from + x * header.bits / 8, static_cast<size_t>(header.bits / 8)}, 0,
          header.bits / 8);
      to[0] = header.red.Of(pixel);
      to[1] = header.green.Of(pixel);
      to[2] = header.blue.Of(pixel);
      if (channels == 4) to[3] = header.alpha.Of(pixel);
      continue;
    }
    const int64_t bit = x * header.bits;
    const int index =
        from[bit / 8] >> (8 - header.bits - bit % 8) & ((1 << header.bits) - 1);
    if (index >= header.num_colors) {
      return Damaged(absl::StrCat("a pixel has colour ", index, " of ",
                                  header.num_colors));
    }
    const uint8_t* color = file.data() + header.palette_offset +
                           index * header.palette_entry_bytes;
    to[0] = color[2];
    if (channels == 1) continue;
    to[1] = color[1];
    to[2] = color[0];
  }
  return absl::OkStatus();
}

}  // namespace

bool IsBmp(absl::Span<const uint8_t> file) {
  return file.size() >= 2 && file[0] == 'B' && file[1] == 'M';
}

absl::StatusOr<CodecHeader> ProbeBmp(absl::Span<const uint8_t> file,
                                     int64_t max_pixels) {
  DATASETD_ASSIGN_OR_RETURN(const BmpHeader bmp, ReadBmpHeader(file));
  DATASETD_RETURN_IF_ERROR(CheckPixels(bmp.width, bmp.height, max_pixels));
  DATASETD_RETURN_IF_ERROR(CheckRows(file, bmp));
  CodecHeader header;
  header.size = {bmp.height, bmp.width};
  header.channels = bmp.channels();
  header.working_bytes = 4 * bmp.width;
  return header;
}

absl::Status DecodeBmp(absl::Span<const uint8_t> file, int channels,
                       absl::Span<uint8_t> pixels) {
  DATASETD_ASSIGN_OR_RETURN(const BmpHeader bmp, ReadBmpHeader(file));
  DATASETD_RETURN_IF_ERROR(CheckRows(file, bmp));
  if (bmp.height * bmp.width * channels !=
      static_cast<int64_t>(pixels.size())) {
    return absl::InternalError(absl::StrCat("a BMP of ", bmp.width, "x",
                                            bmp.height, " into ", pixels.size(),
                                            " bytes"));
  }
  std::vector<uint8_t> row(static_cast<size_t>(4 * bmp.width));
  for (int64_t y = 0; y < bmp.height; ++y) {
    const int64_t stored = bmp.is_top_down ? y : bmp.height - 1 - y;
    DATASETD_RETURN_IF_ERROR(DecodeRow(
        file, bmp, file.data() + bmp.pixels_offset + stored * bmp.row_bytes,
        row.data()));
    ConvertPixels(row.data(), bmp.channels(), bmp.width,
                  pixels.data() + y * bmp.width * channels, channels);
  }
  return absl::OkStatus();
}

}  // namespace datasetd
