#include "client/ctl/preview/contact_sheet.h"

#include <array>
#include <string>

#include "gtest/gtest.h"

namespace datasetd::ctl {
namespace {

using Rgb = std::array<int, 3>;

constexpr Rgb kGround = {0xf4, 0xf4, 0xf4};

SampleImage Filled(int height, int width, const std::vector<uint8_t>& pixel) {
  SampleImage image;
  image.height = height;
  image.width = width;
  image.num_channels = static_cast<int>(pixel.size());
  for (int i = 0; i < height * width; ++i) {
    image.pixels.insert(image.pixels.end(), pixel.begin(), pixel.end());
  }
  return image;
}

Rgb At(const RgbImage& sheet, int y, int x) {
  const uint8_t* const p = &sheet.pixels[(y * sheet.width + x) * 3];
  return {p[0], p[1], p[2]};
}

TEST(ContactSheetTest, RowsStandBelowEachOtherAndEpochsBesideTheOriginal) {
  std::vector<ContactRow> rows(2);
  for (int r = 0; r < 2; ++r) {
    const auto red = static_cast<uint8_t>(100 * r);
    rows[r].original = Filled(2, 3, {red, 0, 0});
    rows[r].augmented = {Filled(2, 3, {red, 1, 0}), Filled(2, 3, {red, 2, 0})};
  }
  const RgbImage sheet = MakeContactSheet(rows, 1).value();
  // 4, the original, 16, two images with 4 after each.
  ASSERT_EQ(sheet.width, 4 + 3 + 16 + 2 * (3 + 4));
  ASSERT_EQ(sheet.height, 4 + 2 * (2 + 4));
  for (int r = 0; r < 2; ++r) {
    const int y = 4 + r * 6;
    EXPECT_EQ(At(sheet, y, 4), (Rgb{100 * r, 0, 0}));
    EXPECT_EQ(At(sheet, y + 1, 6), (Rgb{100 * r, 0, 0}));
    EXPECT_EQ(At(sheet, y, 7), kGround);
    EXPECT_EQ(At(sheet, y, 22), kGround);
    EXPECT_EQ(At(sheet, y, 23), (Rgb{100 * r, 1, 0}));
    EXPECT_EQ(At(sheet, y, 26), kGround);
    EXPECT_EQ(At(sheet, y, 30), (Rgb{100 * r, 2, 0}));
    EXPECT_EQ(At(sheet, y - 1, 4), kGround);
  }
}

TEST(ContactSheetTest, ZoomMakesSquaresOfPixels) {
  std::vector<ContactRow> rows(1);
  rows[0].original = SampleImage{
      .height = 1, .width = 2, .num_channels = 1, .pixels = {10, 20}};
  const RgbImage sheet = MakeContactSheet(rows, 3).value();
  ASSERT_EQ(sheet.width, 4 + 6 + 4);
  ASSERT_EQ(sheet.height, 4 + 3 + 4);
  for (int y = 4; y < 7; ++y) {
    for (int x = 0; x < 6; ++x) {
      const int grey = x < 3 ? 10 : 20;
      EXPECT_EQ(At(sheet, y, 4 + x), (Rgb{grey, grey, grey}));
    }
  }
}

TEST(ContactSheetTest, AlphaLetsTheGroundThrough) {
  std::vector<ContactRow> rows(1);
  rows[0].original = Filled(1, 1, {200, 100, 0, 255});
  rows[0].augmented = {Filled(1, 1, {200, 100, 0, 0}),
                       Filled(1, 1, {0, 0, 0, 128})};
  const RgbImage sheet = MakeContactSheet(rows, 1).value();
  EXPECT_EQ(At(sheet, 4, 4), (Rgb{200, 100, 0}));
  EXPECT_EQ(At(sheet, 4, 21), kGround);
  // 244 * 127 / 255, rounded.
  EXPECT_EQ(At(sheet, 4, 26), (Rgb{122, 122, 122}));
}

TEST(ContactSheetTest, SmallerImagesStandInTheMiddle) {
  std::vector<ContactRow> rows(1);
  rows[0].original = Filled(5, 1, {1, 1, 1});
  rows[0].augmented = {Filled(1, 1, {2, 2, 2})};
  const RgbImage sheet = MakeContactSheet(rows, 1).value();
  EXPECT_EQ(At(sheet, 5, 21), kGround);
  EXPECT_EQ(At(sheet, 6, 21), (Rgb{2, 2, 2}));
  EXPECT_EQ(At(sheet, 7, 21), kGround);
}

TEST(ContactSheetTest, SheetsBeyondAGigabyteAreRefused) {
  std::vector<ContactRow> rows(256);
  for (ContactRow& row : rows) {
    row.original = Filled(4, 4, {1, 1, 1});
    row.augmented.assign(64, Filled(4, 4, {1, 1, 1}));
  }
  const absl::StatusOr<RgbImage> sheet = MakeContactSheet(rows, 64);
  EXPECT_EQ(sheet.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(sheet.status().message(),
            "the sheet of the preview would take 3.4 GB, of at most 1.0 GB: "
            "ask for fewer --samples or --epochs, or a smaller --zoom");
}

TEST(ContactSheetTest, DefaultZoomAimsAt96Pixels) {
  EXPECT_EQ(DefaultZoom(32, 32), 3);
  EXPECT_EQ(DefaultZoom(28, 28), 3);
  EXPECT_EQ(DefaultZoom(1, 1), 96);
  EXPECT_EQ(DefaultZoom(224, 224), 1);
}

}  // namespace
}  // namespace datasetd::ctl
