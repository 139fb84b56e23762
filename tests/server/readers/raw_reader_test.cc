#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/testing/dataset_specs.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Raw, ReaderConformanceTest,
                         ::testing::Values("raw_images", "raw_planes",
                                           "raw_vectors", "raw_blocks"));

namespace {

using ::testing::HasSubstr;

using Options = std::map<std::string, std::string>;

std::string ErrorOf(
    const Options& options, const std::string& content,
    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  MemoryFileSystem files;
  files.Write("/r/data.bin", content);
  const absl::Status status =
      ReadAll(SpecOf("raw", "/r/data.bin", "", options), files, 2).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(RawReaderTest, OptionsAreChecked) {
  EXPECT_THAT(ErrorOf({}, "x"), HasSubstr("needs option shape"));
  for (const char* shape : {"x", "3x", "0", "-1", "3x0", "2147483648",
                            "65536x65536", "1x1x1x1x1x1x1x1x1"}) {
    EXPECT_THAT(ErrorOf({{"shape", shape}}, "x"), HasSubstr("option shape"))
        << shape;
  }
  EXPECT_THAT(ErrorOf({{"shape", "1"}, {"dtype", "uint64"}}, "x"),
              HasSubstr("'uint64', expected one of uint8"));
  EXPECT_THAT(ErrorOf({{"shape", "1"}, {"label_bytes", "3"}}, "x"),
              HasSubstr("label_bytes is 3"));
  EXPECT_THAT(ErrorOf({{"shape", "1"}, {"label", "middle"}}, "x"),
              HasSubstr("expected first or last"));
  EXPECT_THAT(ErrorOf({{"shape", "9x3x3"}, {"layout", "chw"}}, "x"),
              HasSubstr("expected CxHxW"));
  EXPECT_THAT(ErrorOf({{"shape", "1"}, {"name", "a b"}}, "x"),
              HasSubstr("option name"));
  EXPECT_THAT(ErrorOf({{"shape", "1"}, {"header_bytes", "-1"}}, "x"),
              HasSubstr("header_bytes is '-1'"));
  EXPECT_THAT(ErrorOf({{"shape", "300000000"}}, "x"),
              HasSubstr("bytes a record"));
}

TEST(RawReaderTest, WhatIsLeftOverAndLabelsOutOfRangeAreNamed) {
  EXPECT_THAT(ErrorOf({{"shape", "3"}}, "12345", absl::StatusCode::kDataLoss),
              HasSubstr("begins at offset 3"));
  EXPECT_THAT(ErrorOf({{"shape", "3"}, {"header_bytes", "5"}}, "12345"),
              HasSubstr("zero samples after the 5"));
  EXPECT_THAT(ErrorOf({{"shape", "1"}, {"label_bytes", "8"}},
                      std::string(9, '\0') + std::string(9, '\xff')),
              HasSubstr("record 1: the label is 18446744073709551615"));
}

}  // namespace
}  // namespace datasetd::testing
