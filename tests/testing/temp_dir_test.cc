#include "tests/testing/temp_dir.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd::testing {
namespace {

TEST(TempDirTest, IsRemovedWithItsContents) {
  std::filesystem::path path;
  {
    TempDir dir;
    path = dir.path();
    EXPECT_TRUE(std::filesystem::is_directory(path));
    std::filesystem::create_directory(path / "inner");
    std::ofstream(dir.File("inner/file")) << "bytes";
    EXPECT_TRUE(std::filesystem::exists(path / "inner" / "file"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TempDirTest, TwoAreDistinct) {
  TempDir a;
  TempDir b;
  EXPECT_NE(a.path(), b.path());
}

TEST(TempDirTest, ShortPathFitsASocketAddress) {
  TempDir dir(TempDir::Place::kShortPath);
  EXPECT_THAT(dir.File("attach.sock"), ::testing::StartsWith("/tmp/"));
  EXPECT_LT(dir.File("attach.sock").size(), 107u);
}

}  // namespace
}  // namespace datasetd::testing
