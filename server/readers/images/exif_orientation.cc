#include "server/readers/images/exif_orientation.h"

#include <cstddef>

namespace datasetd {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShortType = 3;
constexpr size_t kEntryBytes = 12;

uint32_t Number(absl::Span<const uint8_t> bytes, size_t offset, size_t count,
                bool is_little_endian) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    value = value << 8 | bytes[offset + (is_little_endian ? count - 1 - i : i)];
  }
  return value;
}

}  // namespace

int ExifOrientation(absl::Span<const uint8_t> tiff) {
  if (tiff.size() < 8 || tiff[0] != tiff[1] ||
      (tiff[0] != 'I' && tiff[0] != 'M')) {
    return 1;
  }
  const bool is_little_endian = tiff[0] == 'I';
  const auto number = [&](size_t offset, size_t count) {
    return Number(tiff, offset, count, is_little_endian);
  };
  const size_t directory = number(4, 4);
  if (number(2, 2) != 42 || directory > tiff.size() - 2) return 1;
  const size_t num_entries = number(directory, 2);
  for (size_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > tiff.size()) return 1;
    if (number(entry, 2) != kOrientationTag) continue;
    const uint32_t value = number(entry + 8, 2);
    const bool is_one = number(entry + 2, 2) == kShortType &&
                        number(entry + 4, 4) == 1 && value >= 1 && value <= 8;
    return is_one ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace datasetd
