#include "server/readers/images/png_codec.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "server/readers/images/exif_orientation.h"

namespace datasetd {
namespace {

constexpr uint8_t kSignature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr size_t kSignatureBytes = sizeof(kSignature);
constexpr size_t kHeaderDataBytes = 13;
// Length and kind come before a chunk's data, a checksum after it.
constexpr size_t kChunkHeadBytes = 8;
constexpr size_t kChunkBytes = 12;
constexpr int64_t kMaxExtent = 1'000'000;  // libpng's own limit

uint32_t BigEndian32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 |
         uint32_t{bytes[2]} << 8 | bytes[3];
}

struct PngHeader {
  int64_t width = 0;
  int64_t height = 0;
  int bit_depth = 0;
  int color_type = 0;
  bool is_interlaced = false;
  bool has_transparency = false;  // a tRNS chunk
  int orientation = 1;

  // Channels of a row as libpng returns it: expanded, 8 bits.
  int channels() const {
    switch (color_type) {
      case PNG_COLOR_TYPE_GRAY:
        return 1;
      case PNG_COLOR_TYPE_GRAY_ALPHA:
        return 2;
      case PNG_COLOR_TYPE_PALETTE:
        return has_transparency ? 4 : 3;
      case PNG_COLOR_TYPE_RGB:
        return 3;
      default:
        return 4;
    }
  }
};

// Scans the chunks; libpng verifies them when it decodes.
absl::StatusOr<PngHeader> ReadPngHeader(absl::Span<const uint8_t> file) {
  const size_t first_chunk_end =
      kSignatureBytes + kChunkBytes + kHeaderDataBytes;
  if (file.size() < first_chunk_end) {
    return absl::DataLossError("truncated PNG: ends in its header");
  }
  const uint8_t* data = file.data() + kSignatureBytes + kChunkHeadBytes;
  if (BigEndian32(data - kChunkHeadBytes) != kHeaderDataBytes ||
      std::memcmp(data - 4, "IHDR", 4) != 0) {
    return absl::DataLossError("damaged PNG: does not begin with its header");
  }
  PngHeader header;
  header.width = BigEndian32(data);
  header.height = BigEndian32(data + 4);
  header.bit_depth = data[8];
  header.color_type = data[9];
  header.is_interlaced = data[12] != 0;
  if (header.width < 1 || header.height < 1 || header.width > kMaxExtent ||
      header.height > kMaxExtent) {
    return absl::InvalidArgumentError(
        absl::StrCat("a PNG of ", header.width, "x", header.height,
                     " pixels, expected 1 to ", kMaxExtent, " each way"));
  }
  size_t offset = first_chunk_end;
  while (file.size() - offset >= kChunkBytes) {
    const size_t size = BigEndian32(file.data() + offset);
    if (size > file.size() - offset - kChunkBytes) break;
    const absl::string_view kind(
        reinterpret_cast<const char*>(file.data()) + offset + 4, 4);
    const uint8_t* content = file.data() + offset + kChunkHeadBytes;
    if (kind == "tRNS") header.has_transparency = true;
    if (kind == "eXIf" && header.orientation == 1) {
      header.orientation = ExifOrientation({content, size});
    }
    offset += kChunkBytes + size;
  }
  return header;
}

// Holds the caller's pixels and the target of libpng's error jump; see
// jpeg_codec.cc.
class PngDecoder {
 public:
  explicit PngDecoder(absl::Span<const uint8_t> file) : rest_(file) {}
  ~PngDecoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // Rows have 8 bits per channel; tRNS becomes alpha if requested. With
  // `keeps_classes` grey and palettes have the values in the file.
  bool Start(bool with_transparent_color, bool keeps_classes) {
    png_ = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, this, &Fail, &Ignore,
                                    this, &Allocate, &Free);
    if (png_ == nullptr) return false;
    if (setjmp(target_)) return false;
    info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return false;
    // Skips texts and profiles, so that they take no memory.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kUnread,
                                sizeof(kUnread) / 5);
    png_set_chunk_cache_max(png_, 8);
    png_set_read_fn(png_, this, &Read);
    png_read_info(png_, info_);
    const int color_type = png_get_color_type(png_, info_);
    if (keeps_classes) {
      png_set_packing(png_);
    } else if (color_type == PNG_COLOR_TYPE_PALETTE) {
      png_set_palette_to_rgb(png_);
    } else if (color_type == PNG_COLOR_TYPE_GRAY) {
      png_set_expand_gray_1_2_4_to_8(png_);
    }
    if (with_transparent_color && png_get_valid(png_, info_, PNG_INFO_tRNS)) {
      png_set_tRNS_to_alpha(png_);
    }
    png_set_strip_16(png_);
    num_passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  int num_passes() const { return num_passes_; }
  int channels() const { return png_get_channels(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t row_bytes() const {
    return static_cast<int64_t>(png_get_rowbytes(png_, info_));
  }

  bool ReadRow(uint8_t* row) {
    if (setjmp(target_)) return false;
    png_read_row(png_, row, nullptr);
    return true;
  }

  bool Finish() {
    if (setjmp(target_)) return false;
    png_read_end(png_, nullptr);
    return true;
  }

  absl::Status status() const {
    if (is_out_of_memory_) {
      return absl::ResourceExhaustedError("libpng: no memory to decode");
    }
    return absl::DataLossError(absl::StrCat("damaged PNG: ", message_));
  }

 private:
  static constexpr uint8_t kUnread[] =
      "cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0"
      "sPLT\0sRGB\0tEXt\0tIME\0zTXt";

  static void Fail(png_structp png, png_const_charp message) {
    auto* decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
    const size_t size =
        std::min(std::strlen(message), sizeof(decoder->message_) - 1);
    std::memcpy(decoder->message_, message, size);
    decoder->message_[size] = '\0';
    std::longjmp(decoder->target_, 1);
  }
  static void Ignore(png_structp, png_const_charp) {}
  static png_voidp Allocate(png_structp png, png_alloc_size_t size) {
    png_voidp const memory = std::malloc(size);
    if (memory == nullptr) {
      static_cast<PngDecoder*>(png_get_mem_ptr(png))->is_out_of_memory_ = true;
    }
    return memory;
  }
  static void Free(png_structp, png_voidp memory) { std::free(memory); }
  static void Read(png_structp png, png_bytep to, size_t size) {
    auto* decoder = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (size > decoder->rest_.size()) png_error(png, "ends early");
    std::memcpy(to, decoder->rest_.data(), size);
    decoder->rest_.remove_prefix(size);
  }

  absl::Span<const uint8_t> rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int num_passes_ = 0;
  std::jmp_buf target_;
  char message_[128] = "";
  bool is_out_of_memory_ = false;
};

}  // namespace

bool IsPng(absl::Span<const uint8_t> file) {
  return file.size() >= kSignatureBytes &&
         std::memcmp(file.data(), kSignature, kSignatureBytes) == 0;
}

absl::StatusOr<CodecHeader> ProbePng(absl::Span<const uint8_t> file,
                                     int64_t max_pixels) {
  DATASETD_ASSIGN_OR_RETURN(const PngHeader png, ReadPngHeader(file));
  DATASETD_RETURN_IF_ERROR(CheckPixels(png.width, png.height, max_pixels));
  CodecHeader header;
  header.size = {png.height, png.width};
  header.channels = png.channels();
  header.orientation = png.orientation;
  // Rows before and after expansion and zlib's window; all rows if interlaced.
  header.working_bytes = (256 << 10) + png.width * 8 * 4;
  if (png.is_interlaced) header.working_bytes += png.height * png.width * 4;
  return header;
}

bool HoldsClasses(absl::Span<const uint8_t> file) {
  // The first chunk has the bits of a channel there, and then the colour type.
  constexpr size_t kBitsAt = 24;
  return IsPng(file) && file.size() > kBitsAt + 1 && file[kBitsAt] <= 8 &&
         (file[kBitsAt + 1] == PNG_COLOR_TYPE_GRAY ||
          file[kBitsAt + 1] == PNG_COLOR_TYPE_PALETTE);
}

absl::Status DecodePng(absl::Span<const uint8_t> file, int channels,
                       bool keeps_classes, absl::Span<uint8_t> pixels) {
  PngDecoder decoder(file);
  if (!decoder.Start(channels == 4, keeps_classes)) return decoder.status();
  const int64_t width = decoder.width();
  const int64_t height = decoder.height();
  const int64_t row_bytes = decoder.row_bytes();
  const int native = decoder.channels();
  if (height * width * channels != static_cast<int64_t>(pixels.size()) ||
      row_bytes != width * native) {
    return absl::InternalError(
        absl::StrCat("a PNG of ", width, "x", height, ", ", row_bytes,
                     " bytes a row, into ", pixels.size(), " bytes"));
  }
  const bool is_direct = native == channels;
  const bool is_interlaced = decoder.num_passes() > 1;
  std::vector<uint8_t> rows;
  if (!is_direct) {
    rows.resize(
        static_cast<size_t>(is_interlaced ? height * row_bytes : row_bytes));
  }
  for (int pass = 0; pass < decoder.num_passes(); ++pass) {
    for (int64_t y = 0; y < height; ++y) {
      uint8_t* const to = pixels.data() + y * width * channels;
      uint8_t* const row =
          is_direct ? to : rows.data() + (is_interlaced ? y * row_bytes : 0);
      if (!decoder.ReadRow(row)) return decoder.status();
      if (!is_direct && pass + 1 == decoder.num_passes()) {
        ConvertPixels(row, native, width, to, channels);
      }
    }
  }
  return decoder.Finish() ? absl::OkStatus() : decoder.status();
}

}  // namespace datasetd
