#include "server/readers/images/image_pixels.h"

#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

// ITU-R 601-2 luma in 16-bit fixed point, rounded.
uint8_t Luma(const uint8_t* rgb) {
  return static_cast<uint8_t>(
      (rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

}  // namespace

absl::Status CheckPixels(int64_t width, int64_t height, int64_t max_pixels) {
  if (width * height <= max_pixels) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("declares ", width, "x", height,
                   " pixels, and max_pixels is ", max_pixels));
}

void ConvertPixels(const uint8_t* from, int from_channels, int64_t count,
                   uint8_t* to, int to_channels) {
  if (from_channels == to_channels) {
    std::memcpy(to, from, static_cast<size_t>(count * to_channels));
    return;
  }
  const bool is_grey = from_channels <= 2;
  const int alpha = from_channels == 2 ? 1 : from_channels == 4 ? 3 : -1;
  for (int64_t i = 0; i < count;
       ++i, from += from_channels, to += to_channels) {
    if (to_channels == 1) {
      to[0] = is_grey ? from[0] : Luma(from);
      continue;
    }
    to[0] = from[0];
    to[1] = from[is_grey ? 0 : 1];
    to[2] = from[is_grey ? 0 : 2];
    if (to_channels == 4) to[3] = alpha < 0 ? 255 : from[alpha];
  }
}

void OrientPixels(const uint8_t* from, ImageSize size, int channels,
                  int orientation, uint8_t* to) {
  const int64_t pixel = channels;
  const int64_t row = size.width * pixel;
  // Source offsets of the result's next column and row, and of its corner.
  const bool is_from_right = orientation == 2 || orientation == 3 ||
                             orientation == 7 || orientation == 8;
  const bool is_from_bottom = orientation == 3 || orientation == 4 ||
                              orientation == 6 || orientation == 7;
  const int64_t x_step = is_from_right ? -pixel : pixel;
  const int64_t y_step = is_from_bottom ? -row : row;
  const uint8_t* corner = from + (is_from_right ? row - pixel : 0) +
                          (is_from_bottom ? (size.height - 1) * row : 0);
  const bool is_swapped = SwapsAxes(orientation);
  const int64_t height = is_swapped ? size.width : size.height;
  const int64_t width = is_swapped ? size.height : size.width;
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* source = corner + y * (is_swapped ? x_step : y_step);
    for (int64_t x = 0; x < width; ++x) {
      std::memcpy(to, source, static_cast<size_t>(pixel));
      to += pixel;
      source += is_swapped ? y_step : x_step;
    }
  }
}

}  // namespace datasetd
