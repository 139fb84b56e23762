#include "client/ctl/preview/png_file.h"

#include <fcntl.h>
#include <png.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file_descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::ctl {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::HasSubstr;

RgbImage MakeImage(int width, int height) {
  RgbImage image;
  image.width = width;
  image.height = height;
  for (int i = 0; i < width * height * 3; ++i) {
    image.pixels.push_back(static_cast<uint8_t>(i * 37 + 11));
  }
  return image;
}

RgbImage ReadPng(const std::string& path) {
  RgbImage image;
  png_image header = {};
  header.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_file(&header, path.c_str()) == 0) return image;
  header.format = PNG_FORMAT_RGB;
  image.width = static_cast<int>(header.width);
  image.height = static_cast<int>(header.height);
  image.pixels.resize(PNG_IMAGE_SIZE(header));
  png_image_finish_read(&header, nullptr, image.pixels.data(), 0, nullptr);
  return image;
}

TEST(PngFileTest, WhatIsWrittenIsReadBack) {
  const TempDir directory;
  const RgbImage image = MakeImage(31, 17);
  ASSERT_THAT(WritePng(image, directory.File("a.png")), IsOk());
  const RgbImage read = ReadPng(directory.File("a.png"));
  EXPECT_EQ(read.width, 31);
  EXPECT_EQ(read.height, 17);
  EXPECT_EQ(read.pixels, image.pixels);
}

TEST(PngFileTest, ReplacesAnOlderFileAndLeavesNothingElse) {
  const TempDir directory;
  std::ofstream(directory.File("a.png")) << "old";
  ASSERT_THAT(WritePng(MakeImage(1, 1), directory.File("a.png")), IsOk());
  EXPECT_EQ(ReadPng(directory.File("a.png")).width, 1);
  const auto entries = std::filesystem::directory_iterator(directory.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST(PngFileTest, HasTheModeThatTheUmaskLeaves) {
  const TempDir directory;
  const mode_t old = umask(027);
  EXPECT_THAT(WritePng(MakeImage(1, 1), directory.File("a.png")), IsOk());
  umask(old);
  struct stat status = {};
  ASSERT_EQ(stat(directory.File("a.png").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(PngFileTest, WritesToAPipeAndLeavesItThere) {
  const TempDir directory;
  const std::string path = directory.File("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const FileDescriptor reader(open(path.c_str(), O_RDONLY | O_NONBLOCK));
  ASSERT_TRUE(reader.has_value());
  ASSERT_THAT(WritePng(MakeImage(1, 1), path), IsOk());
  EXPECT_TRUE(std::filesystem::is_fifo(path));
  char head[4] = {};
  ASSERT_EQ(read(reader.get(), head, sizeof(head)), 4);
  EXPECT_EQ(std::string(head, 4), "\x89PNG");
  const auto entries = std::filesystem::directory_iterator(directory.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST(PngFileTest, WritesThroughALinkToADevice) {
  const TempDir directory;
  std::filesystem::create_symlink("/dev/null", directory.File("a.png"));
  ASSERT_THAT(WritePng(MakeImage(1, 1), directory.File("a.png")), IsOk());
  EXPECT_TRUE(std::filesystem::is_symlink(directory.File("a.png")));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(PngFileTest, ReplacesTheFileThatALinkLeadsTo) {
  const TempDir directory;
  std::filesystem::create_directory(directory.File("b"));
  std::ofstream(directory.File("b/real.png")) << "old";
  std::filesystem::create_symlink("b/real.png", directory.File("a.png"));
  const std::filesystem::path opened = directory.File("b/hard.png");
  std::filesystem::create_hard_link(directory.File("b/real.png"), opened);
  ASSERT_THAT(WritePng(MakeImage(1, 1), directory.File("a.png")), IsOk());
  EXPECT_EQ(std::filesystem::read_symlink(directory.File("a.png")),
            "b/real.png");
  EXPECT_EQ(ReadPng(directory.File("b/real.png")).width, 1);
  // It was replaced, not written to.
  EXPECT_EQ(std::filesystem::file_size(opened), 3u);
}

TEST(PngFileTest, MakesTheFileThatALinkLeadsTo) {
  const TempDir directory;
  std::filesystem::create_symlink("real.png", directory.File("a.png"));
  ASSERT_THAT(WritePng(MakeImage(1, 1), directory.File("a.png")), IsOk());
  EXPECT_TRUE(std::filesystem::is_symlink(directory.File("a.png")));
  EXPECT_EQ(ReadPng(directory.File("real.png")).width, 1);
}

TEST(PngFileTest, ErrorsNameThePath) {
  const TempDir directory;
  const std::string path = directory.File("missing/a.png");
  EXPECT_THAT(WritePng(MakeImage(1, 1), path),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
  const std::string folder = directory.path().string();
  EXPECT_THAT(WritePng(MakeImage(1, 1), folder),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(folder + ": Is a directory")));
}

}  // namespace
}  // namespace datasetd::ctl
