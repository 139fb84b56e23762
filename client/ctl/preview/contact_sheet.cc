#include "client/ctl/preview/contact_sheet.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/ctl/output.h"

namespace datasetd::ctl {
namespace {

constexpr int kTargetPixels = 96;
constexpr int kGap = 4;
constexpr int kOriginalGap = 16;  // between the original and the rest
constexpr uint8_t kBackground = 0xf4;
constexpr uint64_t kMaxBytes = 1000000000;

std::array<uint8_t, 3> PixelAt(const SampleImage& image, int y, int x) {
  const uint8_t* const pixel =
      &image.pixels[(static_cast<size_t>(y) * image.width + x) *
                    image.num_channels];
  if (image.num_channels == 1) return {pixel[0], pixel[0], pixel[0]};
  std::array<uint8_t, 3> rgb = {pixel[0], pixel[1], pixel[2]};
  if (image.num_channels == 4) {
    for (uint8_t& value : rgb) {
      value = static_cast<uint8_t>(
          (value * pixel[3] + kBackground * (255 - pixel[3]) + 127) / 255);
    }
  }
  return rgb;
}

void Paste(const SampleImage& image, int zoom, int top, int left,
           RgbImage* sheet) {
  for (int y = 0; y < image.height * zoom; ++y) {
    for (int x = 0; x < image.width * zoom; ++x) {
      const auto rgb = PixelAt(image, y / zoom, x / zoom);
      const size_t offset =
          (static_cast<size_t>(top + y) * sheet->width + left + x) * 3;
      std::copy(rgb.begin(), rgb.end(), sheet->pixels.begin() + offset);
    }
  }
}

}  // namespace

int DefaultZoom(int height, int width) {
  return std::max(1, kTargetPixels / std::max({height, width, 1}));
}

absl::Status CheckPreviewBytes(const char* what, double bytes) {
  if (bytes <= kMaxBytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      what, " of the preview would take ",
      FormatBytes(static_cast<uint64_t>(std::min(bytes, 1e18))),
      ", of at most ", FormatBytes(kMaxBytes),
      ": ask for fewer --samples or --epochs, or a smaller --zoom"));
}

absl::StatusOr<RgbImage> MakeContactSheet(const std::vector<ContactRow>& rows,
                                          int zoom) {
  const int64_t num_augmented = static_cast<int64_t>(rows[0].augmented.size());
  const SampleImage& augmented =
      num_augmented > 0 ? rows[0].augmented[0] : rows[0].original;
  const auto height_of = [&](const ContactRow& row) {
    return int64_t{std::max(row.original.height,
                            num_augmented > 0 ? augmented.height : 0)} *
           zoom;
  };

  int64_t original_width = 0;
  int64_t height = kGap;
  for (const ContactRow& row : rows) {
    original_width =
        std::max(original_width, int64_t{row.original.width} * zoom);
    height += height_of(row) + kGap;
  }
  int64_t width = kGap + original_width + kGap;
  if (num_augmented > 0) {
    width += kOriginalGap - kGap +
             num_augmented * (int64_t{augmented.width} * zoom + kGap);
  }
  DATASETD_RETURN_IF_ERROR(CheckPreviewBytes(
      "the sheet", 3.0 * static_cast<double>(width) * height));
  RgbImage sheet{.width = static_cast<int>(width),
                 .height = static_cast<int>(height)};
  sheet.pixels.assign(static_cast<size_t>(width) * height * 3, kBackground);
  int top = kGap;
  for (const ContactRow& row : rows) {
    const int row_height = static_cast<int>(height_of(row));
    // Smaller images are centred in the row.
    const auto middle = [&](const SampleImage& image) {
      return top + (row_height - image.height * zoom) / 2;
    };
    Paste(row.original, zoom, middle(row.original), kGap, &sheet);
    int left = kGap + static_cast<int>(original_width) + kOriginalGap;
    for (const SampleImage& image : row.augmented) {
      Paste(image, zoom, middle(image), left, &sheet);
      left += augmented.width * zoom + kGap;
    }
    top += row_height + kGap;
  }
  return sheet;
}

}  // namespace datasetd::ctl
