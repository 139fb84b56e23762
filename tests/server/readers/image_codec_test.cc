#include "server/readers/images/image_codec.h"

#include <malloc.h>
#include <sys/resource.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/generated_data.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

struct ImageCase {
  std::string name;
  std::string file;
  ImageSize size;
  int channels = 0;  // of the file
  bool is_turned = false;
};

std::string PathOf(const std::string& name) {
  return absl::StrCat(testing::GeneratedDirectory(), "/image_codec/", name);
}

const std::vector<ImageCase>& AllImages() {
  static const auto* const images = [] {
    auto* all = new std::vector<ImageCase>;
    const auto index =
        nlohmann::json::parse(testing::ReadFileOrDie(PathOf("index.json")));
    for (const auto& [name, entry] : index.items()) {
      all->push_back({.name = name,
                      .file = testing::ReadFileOrDie(PathOf(name)),
                      .size = {entry["size"][0], entry["size"][1]},
                      .channels = entry["channels"],
                      .is_turned = entry["exif"]});
    }
    return all;
  }();
  return *images;
}

ImageCase Image(const std::string& name) {
  for (const ImageCase& image : AllImages()) {
    if (image.name == name) return image;
  }
  ADD_FAILURE() << "no image " << name;
  return {};
}

absl::Span<const uint8_t> Bytes(const std::string& file) {
  return {reinterpret_cast<const uint8_t*>(file.data()), file.size()};
}

absl::StatusOr<std::string> Decode(const std::string& file,
                                   const ImageOptions& options,
                                   ImageSize at_least = {}) {
  const auto header = ProbeImage(Bytes(file), options, at_least);
  if (!header.ok()) return header.status();
  std::string pixels(static_cast<size_t>(header->result_bytes()), '\0');
  const absl::Status status =
      DecodeImage(Bytes(file), options, at_least,
                  {reinterpret_cast<uint8_t*>(pixels.data()), pixels.size()});
  if (!status.ok()) return status;
  return pixels;
}

bool IsBadImage(const absl::Status& status) {
  return status.code() == absl::StatusCode::kDataLoss ||
         status.code() == absl::StatusCode::kInvalidArgument;
}

TEST(ImageCodecTest, PixelsAreThoseOfPil) {
  EXPECT_GE(AllImages().size(), 80);
  for (const ImageCase& image : AllImages()) {
    for (const int channels : {1, 3, 4}) {
      const ImageOptions options = {.channels = channels,
                                    .apply_exif = image.is_turned};
      const auto header = ProbeImage(Bytes(image.file), options);
      ASSERT_TRUE(header.ok()) << image.name << ": " << header.status();
      EXPECT_EQ(header->size, image.size) << image.name;
      EXPECT_EQ(header->channels, channels) << image.name;
      EXPECT_GE(header->decode_bytes, header->result_bytes()) << image.name;
      const auto pixels = Decode(image.file, options);
      ASSERT_TRUE(pixels.ok()) << image.name << ": " << pixels.status();
      EXPECT_TRUE(*pixels == testing::ReadFileOrDie(PathOf(absl::StrCat(
                                 image.name, ".", channels, ".expected"))))
          << image.name << " in " << channels << " channels differs";
    }
  }
}

TEST(ImageCodecTest, AsItIsKeepsTheChannelsOfTheFile) {
  for (const ImageCase& image : AllImages()) {
    const auto header = ProbeImage(Bytes(image.file), {.channels = 0});
    ASSERT_TRUE(header.ok()) << image.name << ": " << header.status();
    EXPECT_EQ(header->channels, image.channels) << image.name;
    const auto pixels = Decode(image.file, {.channels = 0});
    ASSERT_TRUE(pixels.ok()) << image.name << ": " << pixels.status();
    if (image.channels == 2) continue;
    const auto same = Decode(image.file, {.channels = image.channels});
    EXPECT_TRUE(*pixels == *same) << image.name;
  }
}

TEST(ImageCodecTest, OrientationIsLeftAloneUnlessAskedFor) {
  const ImageCase image = Image("exif_6_II_jpeg");
  const auto plain = ProbeImage(Bytes(image.file), {});
  const auto turned = ProbeImage(Bytes(image.file), {.apply_exif = true});
  EXPECT_EQ(plain->size, (ImageSize{17, 31}));
  EXPECT_EQ(turned->size, (ImageSize{31, 17}));
}

// A JPEG with `bytes` before the marker `before`, FF xx.
std::string WithBytes(std::string jpeg, const std::string& before,
                      const std::string& bytes) {
  return jpeg.insert(jpeg.find(before), bytes);
}

// True if the image, of 17 x 31 pixels, is turned to the side.
bool IsTurned(const std::string& jpeg) {
  const auto header = ProbeImage(Bytes(jpeg), {.apply_exif = true});
  if (!header.ok()) ADD_FAILURE() << header.status();
  return header.ok() && header->size == ImageSize{31, 17};
}

TEST(ImageCodecTest, TheFirstExifSegmentBeforeTheDataCounts) {
  using namespace std::string_literals;  // NOLINT: for zeros in literals
  const std::string plain = Image("jpeg_17x31").file;
  const std::string exif =
      "\xFF\xE1\0\x22"
      "Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"s;
  std::string upright = exif;
  upright[29] = 1;
  EXPECT_FALSE(IsTurned(plain));
  EXPECT_TRUE(IsTurned(WithBytes(plain, "\xFF\xE0", exif)));
  EXPECT_TRUE(IsTurned(WithBytes(plain, "\xFF\xDA", exif)));
  EXPECT_FALSE(IsTurned(WithBytes(plain, "\xFF\xD9", exif)));
  EXPECT_FALSE(IsTurned(WithBytes(plain, "\xFF\xDA", upright + exif)));
  // One in a comment is none.
  EXPECT_FALSE(
      IsTurned(WithBytes(plain, "\xFF\xDA", "\xFF\xFE\0\x26"s + exif)));
  // Other segments are passed over, and so are bytes between them.
  for (const std::string& before :
       {"\xFF\xE1\0\x09http://"s,
        "\xFF\xE1\0\x08"
        "Exif\0\0"s,
        "\xFF\xE1\0\x02"s, "\xFF\xE1\0\0"s, "\xFF\xFE\0\x03x"s, "\xFF\xFF"s,
        "\xFF\xD0"s, "\xFF\x01"s, "\xFF\0"s, "x"s}) {
    EXPECT_TRUE(IsTurned(WithBytes(plain, "\xFF\xDA", before + exif)))
        << absl::CHexEscape(before);
    EXPECT_FALSE(
        IsTurned(WithBytes(plain, "\xFF\xDA", before + upright + exif)))
        << absl::CHexEscape(before);
  }
}

TEST(ImageCodecTest, FastDecodeTakesTheSmallestScaleThatIsLargeEnough) {
  const std::string file = Image("jpeg_375x500").file;
  const ImageOptions fast = {.fast_decode = true};
  const auto size = [&](ImageSize at_least) {
    return ProbeImage(Bytes(file), fast, at_least)->size;
  };
  EXPECT_EQ(size({0, 0}), (ImageSize{375, 500}));
  EXPECT_EQ(size({188, 251}), (ImageSize{375, 500}));
  EXPECT_EQ(size({188, 250}), (ImageSize{188, 250}));
  EXPECT_EQ(size({94, 94}), (ImageSize{94, 125}));
  EXPECT_EQ(size({1, 1}), (ImageSize{47, 63}));
  EXPECT_EQ(size({400, 1}), (ImageSize{375, 500}));
  EXPECT_EQ(ProbeImage(Bytes(file), {}, {1, 1})->size, (ImageSize{375, 500}));
  const auto pixels = Decode(file, fast, {94, 94});
  ASSERT_TRUE(pixels.ok()) << pixels.status();
  EXPECT_EQ(pixels->size(), 94 * 125 * 3);
  // Turned, the wish is of the turned image.
  const ImageOptions turned = {.apply_exif = true, .fast_decode = true};
  const std::string tall = Image("exif_6_II_jpeg").file;
  EXPECT_EQ(ProbeImage(Bytes(tall), turned, {16, 5})->size, (ImageSize{16, 9}));
  EXPECT_TRUE(Decode(tall, turned, {16, 5}).ok());
}

TEST(ImageCodecTest, MorePixelsThanAllowedAreRefused) {
  for (const char* name : {"jpeg_17x31", "png_RGB", "bmp_RGB"}) {
    const ImageCase image = Image(name);
    const int64_t pixels = image.size.height * image.size.width;
    EXPECT_TRUE(ProbeImage(Bytes(image.file), {.max_pixels = pixels}).ok());
    const absl::Status status =
        ProbeImage(Bytes(image.file), {.max_pixels = pixels - 1}).status();
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("declares ", image.size.width,
                                                "x", image.size.height))));
    EXPECT_EQ(Decode(image.file, {.max_pixels = pixels - 1}).status(), status);
  }
}

TEST(ImageCodecTest, DeclaredGigapixelsAreRefused) {
  std::string jpeg = Image("jpeg_17x31").file;
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xFF\xDC\xFF\xDC");
  std::string png = Image("png_RGB").file;
  png.replace(16, 8, std::string("\0\x0F\x42\x40\0\x0F\x42\x40", 8));
  std::string bmp = Image("bmp_RGB").file;
  bmp.replace(18, 8, "\xFF\xFF\xFF\x7F\xFF\xFF\xFF\x7F");
  for (const std::string& file : {jpeg, png, bmp}) {
    EXPECT_THAT(Decode(file, {}), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("max_pixels")));
  }
}

TEST(ImageCodecTest, OtherKindsAreNamed) {
  const std::pair<std::string, const char*> kinds[] = {
      {"", "empty"},
      {"GIF89a........", "GIF"},
      {"RIFF....WEBPVP8 ", "WebP"},
      {std::string("II*\0....", 8), "TIFF"},
      {"P6 2 2 255 ", "PNM"},
      {"....ftypheic", "HEIF"},
      {"hello", "unknown"},
      {"\xFF\xD8", "unknown"},
  };
  for (const auto& [file, kind] : kinds) {
    EXPECT_THAT(ProbeImage(Bytes(file), {}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(kind)))
        << kind;
  }
}

TEST(ImageCodecTest, TruncationAtEvery64thIsAnError) {
  for (const ImageCase& image : AllImages()) {
    if (image.name == "jpeg_375x500") continue;  // takes long, tells no more
    for (size_t part = 0; part < 64; ++part) {
      const std::string cut =
          image.file.substr(0, image.file.size() * part / 64);
      const absl::Status status = Decode(cut, {}).status();
      EXPECT_TRUE(IsBadImage(status))
          << image.name << " of " << cut.size() << ": " << status;
    }
  }
}

TEST(ImageCodecTest, FlippedBitsGivePixelsOrAnError) {
  std::mt19937_64 random(11);
  const std::vector<ImageCase>& images = AllImages();
  for (int i = 0; i < 3000; ++i) {
    const ImageCase& image = images[random() % images.size()];
    std::string damaged = image.file;
    const size_t range =
        i % 2 == 0 ? damaged.size() : std::min<size_t>(damaged.size(), 128);
    damaged[random() % range] ^= static_cast<char>(1 << random() % 8);
    const absl::Status status =
        Decode(damaged, {.apply_exif = true, .max_pixels = 1 << 20}).status();
    EXPECT_TRUE(status.ok() || IsBadImage(status))
        << image.name << ": " << status;
  }
}

TEST(ImageCodecTest, AJpegOfTooManyScansIsRefused) {
  std::string file = Image("jpeg_progressive").file;
  // The last scan again and again.
  const size_t last_scan = file.rfind("\xFF\xDA");
  const std::string scan = file.substr(last_scan, file.size() - 2 - last_scan);
  file.resize(file.size() - 2);
  for (int i = 0; i < 100; ++i) file += scan;
  file += "\xFF\xD9";
  const absl::Status status = Decode(file, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
}

#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && \
    !defined(ABSL_HAVE_THREAD_SANITIZER)

// Runs in a process of its own, which then has some 100 KiB.
void DecodeWithoutMemory(const std::string& file) {
  const ImageOptions options = {.channels = 0};
  std::string pixels(
      static_cast<size_t>(ProbeImage(Bytes(file), options)->result_bytes()),
      '\0');
  const rlimit none = {0, 0};
  if (setrlimit(RLIMIT_AS, &none) != 0) std::_Exit(1);
  void* const left = std::malloc(512 << 10);
  // Volatile, so that the calls stay.
  static void* volatile taken;
  do {
    taken = std::malloc(1 << 20);
  } while (taken != nullptr);
  std::free(left);
  const absl::Status status =
      DecodeImage(Bytes(file), options, {},
                  {reinterpret_cast<uint8_t*>(pixels.data()), pixels.size()});
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::_Exit(0);
}

TEST(ImageCodecDeathTest, WithoutMemoryAnImageIsNotDamaged) {
  std::string jpeg = Image("jpeg_progressive").file;
  jpeg.replace(jpeg.find("\xFF\xC2") + 5, 4, "\x0F\xA0\x0F\xA0");
  EXPECT_EXIT(DecodeWithoutMemory(jpeg), ::testing::ExitedWithCode(0),
              "RESOURCE_EXHAUSTED: libjpeg: no memory");
  // One row takes 8 MB.
  std::string png = Image("png_rgba16").file;
  png.replace(16, 8, std::string("\0\x0F\x42\x40\0\0\0\x01", 8));
  uint32_t crc = static_cast<uint32_t>(crc32(0, &Bytes(png)[12], 17));
  for (size_t i = 33; i-- > 29; crc >>= 8) png[i] = static_cast<char>(crc);
  EXPECT_EXIT(DecodeWithoutMemory(png), ::testing::ExitedWithCode(0),
              "RESOURCE_EXHAUSTED: libpng: no memory");
}

#endif

// Everything comes from the arena, whose growth tells the most that was held.
void ExpectMemoryWithinDecodeBytes(const std::string& name,
                                   const std::string& file) {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  const ImageOptions options = {.channels = 4, .apply_exif = true};
  const auto header = ProbeImage(Bytes(file), options);
  ASSERT_TRUE(header.ok()) << header.status();
  std::string pixels(static_cast<size_t>(header->result_bytes()), '\0');
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  malloc_trim(0);
  const size_t arena = mallinfo2().arena;
  ASSERT_TRUE(
      DecodeImage(Bytes(file), options, {},
                  {reinterpret_cast<uint8_t*>(pixels.data()), pixels.size()})
          .ok());
  const int64_t growth =
      static_cast<int64_t>(mallinfo2().arena) - static_cast<int64_t>(arena);
  EXPECT_LE(growth, header->decode_bytes + (256 << 10)) << name;
  EXPECT_EQ(mallinfo2().uordblks + mallinfo2().hblkhd, before) << name;
}

TEST(ImageCodecTest, MemoryStaysWithinDecodeBytes) {
  for (const char* name :
       {"jpeg_375x500", "jpeg_progressive", "jpeg_progressive_grey",
        "jpeg_cmyk", "png_rgba16", "png_interlaced_64x64", "png_texts",
        "png_palette_alpha", "bmp_RGB", "exif_6_II_jpeg"}) {
    ExpectMemoryWithinDecodeBytes(name, Image(name).file);
  }
}

TEST(ImageCodecTest, SmallSegmentsOfAJpegTakeNoMemory) {
  const std::string plain = Image("exif_6_II_jpeg").file;
  for (const char marker : {'\xE1', '\xE0', '\xED', '\xFE', '\xDB', '\xC4'}) {
    std::string segments;
    for (int i = 0; i < 100'000; ++i) {
      segments.append({'\xFF', marker, '\0', '\2'});
    }
    const std::string file = WithBytes(plain, "\xFF\xE0", segments);
    EXPECT_TRUE(IsTurned(file));
    const ImageOptions options = {.apply_exif = true};
    EXPECT_EQ(ProbeImage(Bytes(file), options)->decode_bytes,
              ProbeImage(Bytes(plain), options)->decode_bytes);
    EXPECT_TRUE(*Decode(file, options) == *Decode(plain, options));
    ExpectMemoryWithinDecodeBytes("segments", file);
  }
}

}  // namespace
}  // namespace datasetd
