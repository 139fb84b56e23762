#include "server/readers/images/exif_orientation.h"

#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using namespace std::string_literals;  // NOLINT: for zeros in literals

int Orientation(absl::string_view tiff) {
  return ExifOrientation(
      {reinterpret_cast<const uint8_t*>(tiff.data()), tiff.size()});
}

TEST(ExifOrientationTest, ReadsBothByteOrders) {
  EXPECT_EQ(Orientation("II*\0\x08\0\0\0\x01\0"
                        "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"s),
            6);
  EXPECT_EQ(Orientation("MM\0*\0\0\0\x08\0\x01"
                        "\x01\x12\0\x03\0\0\0\x01\0\x08\0\0"s),
            8);
}

TEST(ExifOrientationTest, WhatIsNoOrientationIsOne) {
  EXPECT_EQ(Orientation(""), 1);
  EXPECT_EQ(Orientation("XX*\0\x08\0\0\0\x01\0"s), 1);
  // Another magic number.
  EXPECT_EQ(Orientation("II+\0\x08\0\0\0\x01\0"
                        "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"s),
            1);
  // Values out of 1..8, two values, another type.
  for (const char* entry : {"\x12\x01\x03\0\x01\0\0\0\x00\0\0\0",
                            "\x12\x01\x03\0\x01\0\0\0\x09\0\0\0",
                            "\x12\x01\x03\0\x02\0\0\0\x06\0\0\0",
                            "\x12\x01\x04\0\x01\0\0\0\x06\0\0\0"}) {
    EXPECT_EQ(Orientation("II*\0\x08\0\0\0\x01\0"s + std::string(entry, 12)),
              1);
  }
}

TEST(ExifOrientationTest, NothingIsReadBehindTheEnd) {
  const std::string whole =
      "II*\0\x08\0\0\0\x02\0"
      "\x00\x01\x03\0\x01\0\0\0\x06\0\0\0"
      "\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"s;
  for (size_t size = 0; size < whole.size(); ++size) {
    // On the heap, so that a sanitizer sees.
    const std::string cut(whole, 0, size);
    EXPECT_EQ(Orientation(cut), 1) << size;
  }
  EXPECT_EQ(Orientation(whole), 6);
  // A directory beyond the end, and more entries than there are.
  EXPECT_EQ(Orientation("II*\0\xFF\xFF\xFF\xFF\x01\0"s), 1);
  EXPECT_EQ(Orientation("II*\0\x08\0\0\0\xFF\xFF"s), 1);
}

}  // namespace
}  // namespace datasetd
