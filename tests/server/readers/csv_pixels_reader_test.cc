#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(CsvPixels, ReaderConformanceTest,
                         ::testing::Values("csv_pixels_train",
                                           "csv_pixels_public_test",
                                           "csv_pixels_private_test",
                                           "csv_pixels_all",
                                           "csv_pixels_wide"));

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& content,
                    const std::map<std::string, std::string>& options = {}) {
  MemoryFileSystem files;
  files.Write("/c/p.csv", content);
  const absl::Status status =
      ReadAll({"csv_pixels", "/c/p.csv", "", options}, files, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(CsvPixelsReaderTest, RowsAreNamedByLineAndOffset) {
  const std::string head = "emotion,pixels,Usage\n1,1 2 3 4,Training\n";
  EXPECT_THAT(ErrorOf("a,b\n1,2\n"),
              AllOf(HasSubstr("/c/p.csv: line 1, offset 0"),
                    HasSubstr("no column is called pixels")));
  EXPECT_THAT(ErrorOf("pixels,Pixels\n1,2\n"), HasSubstr("one meaning"));
  EXPECT_THAT(ErrorOf("emotion,pixels\n"), HasSubstr("zero samples"));
  EXPECT_THAT(ErrorOf("emotion,pixels,Usage\n1,1 2 3 4,PublicTest\n"),
              HasSubstr("zero samples of split train"));
  EXPECT_THAT(ErrorOf(head + "1,1 2 3 4\n"),
              AllOf(HasSubstr("line 3, offset 40"), HasSubstr("2 columns")));
  EXPECT_THAT(ErrorOf(head + "1,1 2 3,Training\n"), HasSubstr("fewer pixels"));
  EXPECT_THAT(ErrorOf(head + "1,100 100 3,Training\n"),
              HasSubstr("3 pixels, expected 2 x 2"));
  EXPECT_THAT(ErrorOf(head + "1,1 2 3 4 5,Training\n"),
              HasSubstr("5 pixels, expected 2 x 2"));
  EXPECT_THAT(ErrorOf(head + "1,1 2 256 4,Training\n"),
              HasSubstr("pixel 2 is 256"));
  EXPECT_THAT(ErrorOf(head + "1,1 2 -3 4,Training\n"),
              HasSubstr("pixel 2 is '-3"));
  EXPECT_THAT(ErrorOf(head + "1,1 2 0003 4,Training\n"),
              HasSubstr("pixel 2 is '0003"));
  EXPECT_THAT(ErrorOf(head + "happy,1 2 3 4,Training\n"),
              HasSubstr("the label is 'happy'"));
  EXPECT_THAT(ErrorOf(head + std::string("1,1 \0 3 4,Training\n", 19)),
              HasSubstr("holds a NUL"));
  EXPECT_THAT(ErrorOf("pixels\n1 2 3\n"), HasSubstr("3 pixels are not 2 x 2"));
  EXPECT_THAT(ErrorOf("pixels\n1 2 3\n", {{"height", "2"}}),
              HasSubstr("3 pixels are not 2 x 1"));
  EXPECT_THAT(ErrorOf("pixels\n\"\"\n"), HasSubstr("0 pixels"));
  EXPECT_THAT(ErrorOf("pixels\n1\n", {{"height", "0"}}), HasSubstr("height"));
}

TEST(CsvPixelsReaderTest, LinesWithoutEndAreRefusedWithinBounds) {
  EXPECT_THAT(ErrorOf(std::string(9 << 20, 'x')), HasSubstr("longer than"));
}

TEST(CsvPixelsReaderTest, BlankLinesAreLeftOut) {
  MemoryFileSystem files;
  files.Write("/c/p.csv", "pixels\n\n1 2 3 4\n \n5  6 7 8 \n\n");
  const auto all = ReadAll({"csv_pixels", "/c/p.csv", "", {}}, files, 2);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->fields[0], "\1\2\3\4\5\6\7\10");
}

}  // namespace
}  // namespace datasetd::testing
