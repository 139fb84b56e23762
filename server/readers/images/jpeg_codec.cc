#include "server/readers/images/jpeg_codec.h"

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

// In this order: each needs what is before it.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/readers/images/exif_orientation.h"

namespace datasetd {
namespace {

// Files usually have about ten scans; each decodes the whole image again.
constexpr int kMaxScans = 64;
constexpr uint8_t kStartOfScan = 0xDA;
constexpr char kExifMarker[] = "Exif\0";  // and one more zero
constexpr size_t kExifMarkerBytes = 6;

// libjpeg reports errors by longjmp, so no frame with a destructor may be
// between the jump and its target: every method that calls libjpeg sets the
// target first, and state that changes afterwards is kept in members.
class JpegDecoder {
 public:
  explicit JpegDecoder(absl::Span<const uint8_t> file) : file_(file) {
    info_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = &Exit;
    errors_.manager.emit_message = &Warn;
    info_.client_data = this;
    progress_.progress_monitor = &CountScans;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  bool ReadHeader() {
    if (setjmp(errors_.target)) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, file_.data(), file_.size());
    jpeg_read_header(&info_, TRUE);
    return !is_damaged_;
  }

  void ChooseScale(ImageSize at_least) {
    if (at_least.height < 1 || at_least.width < 1) return;
    for (const int64_t scale : {8, 4, 2}) {
      if ((info_.image_height + scale - 1) / scale >= at_least.height &&
          (info_.image_width + scale - 1) / scale >= at_least.width) {
        info_.scale_num = 1;
        info_.scale_denom = static_cast<unsigned>(scale);
        return;
      }
    }
  }

  bool CalculateOutput() {
    if (setjmp(errors_.target)) return false;
    jpeg_calc_output_dimensions(&info_);
    return true;
  }

  bool Start() {
    if (setjmp(errors_.target)) return false;
    jpeg_start_decompress(&info_);
    return !is_damaged_;
  }

  // Reads one row to `row`.
  bool ReadRow(uint8_t* row) {
    if (setjmp(errors_.target)) return false;
    jpeg_read_scanlines(&info_, &row, 1);
    return !is_damaged_;
  }

  bool Finish() {
    if (setjmp(errors_.target)) return false;
    jpeg_finish_decompress(&info_);
    return !is_damaged_;
  }

  jpeg_decompress_struct& info() { return info_; }

  // The reason why a method returned false.
  absl::Status status() const {
    if (is_out_of_memory_) {
      return absl::ResourceExhaustedError("libjpeg: no memory to decode");
    }
    return absl::DataLossError(absl::StrCat("damaged JPEG: ", message_));
  }

 private:
  struct Errors {
    jpeg_error_mgr manager;
    std::jmp_buf target;
  };

  static JpegDecoder& Of(j_common_ptr info) {
    return *static_cast<JpegDecoder*>(info->client_data);
  }

  static void Exit(j_common_ptr info) {
    JpegDecoder& decoder = Of(info);
    decoder.is_out_of_memory_ = info->err->msg_code == JERR_OUT_OF_MEMORY;
    (*info->err->format_message)(info, decoder.message_);
    std::longjmp(decoder.errors_.target, 1);
  }

  // Records a warning about lost or invented pixels; libjpeg continues.
  static void Warn(j_common_ptr info, int level) {
    JpegDecoder& decoder = Of(info);
    if (level >= 0 || decoder.is_damaged_) return;
    switch (info->err->msg_code) {
      case JWRN_ARITH_BAD_CODE:
      case JWRN_BOGUS_PROGRESSION:
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_JPEG_EOF:
      case JWRN_MUST_RESYNC:
      case JWRN_NOT_SEQUENTIAL:
        decoder.is_damaged_ = true;
        (*info->err->format_message)(info, decoder.message_);
        break;
      default:
        break;
    }
  }

  static void CountScans(j_common_ptr info) {
    JpegDecoder& decoder = Of(info);
    if (decoder.info_.input_scan_number <= kMaxScans) return;
    std::snprintf(decoder.message_, sizeof(decoder.message_),
                  "more than %d scans", kMaxScans);
    std::longjmp(decoder.errors_.target, 1);
  }

  const absl::Span<const uint8_t> file_;
  jpeg_decompress_struct info_ = {};
  jpeg_progress_mgr progress_ = {};
  Errors errors_ = {};
  char message_[JMSG_LENGTH_MAX] = "";
  bool is_damaged_ = false;
  bool is_out_of_memory_ = false;
};

// Returns 0 for an unsupported colour space.
int NativeChannels(const jpeg_decompress_struct& info) {
  switch (info.jpeg_color_space) {
    case JCS_GRAYSCALE:
      return 1;
    case JCS_RGB:
    case JCS_YCbCr:
    case JCS_CMYK:
    case JCS_YCCK:
      return 3;
    default:
      return 0;
  }
}

bool IsCmyk(const jpeg_decompress_struct& info) {
  return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
}

// Converts in place, 4 bytes to 3. Adobe stores CMYK inverted, as assumed here.
void CmykToRgb(uint8_t* pixels, int64_t count) {
  const uint8_t* from = pixels;
  uint8_t* to = pixels;
  for (int64_t i = 0; i < count; ++i, from += 4, to += 3) {
    const int white = from[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - from[c]) * white + 128;
      to[c] = static_cast<uint8_t>(white - (((product >> 8) + product) >> 8));
    }
  }
}

// True for the markers that are no segments: RST0 to RST7 and TEM.
bool IsBareMarker(uint8_t marker) {
  return (marker >= JPEG_RST0 && marker < JPEG_RST0 + 8) || marker == 0x01;
}

// Walks the segments before the image data as libjpeg did in ReadHeader, to the
// first one of EXIF. jpeg_save_markers would keep them in a list that it walks
// for each one more: a file of many small ones would take quadratic time.
int OrientationOf(absl::Span<const uint8_t> file) {
  // Behind the SOI. A segment has a marker, FF xx, and its size without that.
  size_t at = 2;
  while (at + 4 <= file.size()) {
    const uint8_t marker = file[at + 1];
    // libjpeg skips what is between segments.
    if (file[at] != 0xFF || marker == 0xFF || marker == 0) {
      ++at;
      continue;
    }
    at += 2;
    if (IsBareMarker(marker)) continue;
    if (marker == kStartOfScan) return 1;
    const size_t size =
        std::max(size_t{file[at]} << 8 | file[at + 1], size_t{2});
    const absl::Span<const uint8_t> data = file.subspan(at + 2, size - 2);
    if (marker == JPEG_APP0 + 1 && data.size() > kExifMarkerBytes &&
        std::memcmp(data.data(), kExifMarker, kExifMarkerBytes - 1) == 0) {
      return ExifOrientation(data.subspan(kExifMarkerBytes));
    }
    at += size;
  }
  return 1;
}

// Progressive images keep all coefficients in memory, others a few rows.
int64_t WorkingBytes(jpeg_decompress_struct& info) {
  int64_t bytes =
      (64 << 10) + int64_t{info.image_width} * info.num_components * 64;
  if (!jpeg_has_multiple_scans(&info)) return bytes;
  for (int c = 0; c < info.num_components; ++c) {
    const jpeg_component_info& component = info.comp_info[c];
    bytes += int64_t{component.width_in_blocks + component.h_samp_factor} *
             (component.height_in_blocks + component.v_samp_factor) * DCTSIZE2 *
             int64_t{sizeof(JCOEF)};
  }
  return bytes;
}

absl::Status CheckKind(const jpeg_decompress_struct& info) {
  if (NativeChannels(info) != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a JPEG of ", info.num_components,
                   " components in an unknown colour space is not decoded"));
}

}  // namespace

bool IsJpeg(absl::Span<const uint8_t> file) {
  return file.size() >= 3 && file[0] == 0xFF && file[1] == 0xD8 &&
         file[2] == 0xFF;
}

absl::StatusOr<CodecHeader> ProbeJpeg(absl::Span<const uint8_t> file,
                                      ImageSize at_least, int64_t max_pixels) {
  JpegDecoder decoder(file);
  if (!decoder.ReadHeader()) return decoder.status();
  jpeg_decompress_struct& info = decoder.info();
  if (const absl::Status kind = CheckKind(info); !kind.ok()) return kind;
  DATASETD_RETURN_IF_ERROR(
      CheckPixels(info.image_width, info.image_height, max_pixels));
  CodecHeader header;
  header.orientation = OrientationOf(file);
  decoder.ChooseScale(at_least);
  if (!decoder.CalculateOutput()) return decoder.status();
  header.size = {info.output_height, info.output_width};
  header.channels = NativeChannels(info);
  header.working_bytes = WorkingBytes(info);
  return header;
}

absl::Status DecodeJpeg(absl::Span<const uint8_t> file, ImageSize at_least,
                        int channels, absl::Span<uint8_t> pixels) {
  JpegDecoder decoder(file);
  if (!decoder.ReadHeader()) return decoder.status();
  jpeg_decompress_struct& info = decoder.info();
  if (const absl::Status kind = CheckKind(info); !kind.ok()) return kind;
  const int native = NativeChannels(info);
  info.out_color_space = IsCmyk(info)  ? JCS_CMYK
                         : native == 1 ? JCS_GRAYSCALE
                                       : JCS_RGB;
  decoder.ChooseScale(at_least);
  if (!decoder.Start()) return decoder.status();
  const int64_t width = info.output_width;
  const int64_t height = info.output_height;
  if (height * width * channels != static_cast<int64_t>(pixels.size())) {
    return absl::InternalError(absl::StrCat("a JPEG of ", width, "x", height,
                                            " into ", pixels.size(), " bytes"));
  }
  const bool is_direct = native == channels && !IsCmyk(info);
  std::vector<uint8_t> row;
  if (!is_direct) row.resize(static_cast<size_t>(width * 4));
  for (int64_t y = 0; y < height; ++y) {
    uint8_t* const to = pixels.data() + y * width * channels;
    if (!decoder.ReadRow(is_direct ? to : row.data())) return decoder.status();
    if (is_direct) continue;
    if (IsCmyk(info)) CmykToRgb(row.data(), width);
    ConvertPixels(row.data(), native, width, to, channels);
  }
  return decoder.Finish() ? absl::OkStatus() : decoder.status();
}

}  // namespace datasetd
