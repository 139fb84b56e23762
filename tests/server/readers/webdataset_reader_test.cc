#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/testing/dataset_specs.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Webdataset, ReaderConformanceTest,
                         ::testing::Values("webdataset_shards",
                                           "webdataset_gnu", "webdataset_pax",
                                           "webdataset_fields",
                                           "webdataset_gzip"));

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Status ReadWith(const std::map<std::string, std::string>& options,
                      const std::string& path = "") {
  const GeneratedCase generated = LoadGeneratedCase("webdataset_gnu");
  const MemoryFileSystem files = CopyToMemory(generated);
  v1::DatasetSpec spec = generated.spec;
  SetOptions(spec, options);
  if (!path.empty()) spec.set_path(path);
  return ReadAll(spec, files, 2).status();
}

TEST(WebdatasetReaderTest, FieldsAreChecked) {
  const auto error_of = [](const std::string& fields) {
    const absl::Status status = ReadWith({{"fields", fields}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error_of("a:txt"), HasSubstr("field 'a' is made of 'txt'"));
  EXPECT_THAT(error_of("a:jpg;cls"), HasSubstr("endings of one kind"));
  EXPECT_THAT(error_of("a:cls"),
              AllOf(HasSubstr("all.tar: offset"), HasSubstr("no .cls"),
                    HasSubstr("field 'a'")));
  EXPECT_THAT(error_of("1a:jpg"), HasSubstr("option fields"));
  // The second sample's image is a JPEG.
  EXPECT_THAT(error_of("a:png"),
              AllOf(HasSubstr("all.tar"),
                    HasSubstr("field 'a': the sample has no .png")));
}

TEST(WebdatasetReaderTest, ASplitIsAPattern) {
  EXPECT_EQ(ReadWith({}, "/none-{0..3}.tar").code(),
            absl::StatusCode::kNotFound);
  const absl::Status status = ReadWith({}, "/x{");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the pattern '/x{'"));
}

TEST(WebdatasetReaderTest, DamagedGzipNamesTheFileAndItsOffset) {
  const GeneratedCase generated = LoadGeneratedCase("webdataset_gzip");
  MemoryFileSystem files = CopyToMemory(generated);
  std::string content = files.contents().at(generated.spec.path());
  const auto error = [&] {
    files.Write(generated.spec.path(), content);
    const absl::Status status = OpenReader(generated.spec, {files}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  };
  // The checksum, at the end.
  content[content.size() - 8] ^= 1;
  EXPECT_THAT(error(), AllOf(HasSubstr("all.tgz: damaged gzip data before"),
                             HasSubstr("incorrect data check")));
  content.resize(content.size() - 9);
  EXPECT_THAT(error(), HasSubstr("all.tgz: gzip data ends early"));
}

TEST(WebdatasetReaderTest, WhatAShardInflatesToHasALimit) {
  GeneratedCase generated = LoadGeneratedCase("webdataset_gzip");
  const MemoryFileSystem files = CopyToMemory(generated);
  SetOption(generated.spec, "max_inflated_bytes", "100");
  const absl::Status status = OpenReader(generated.spec, {files}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(generated.spec.path() + ": its "),
                    HasSubstr("option max_inflated_bytes")));
}

}  // namespace
}  // namespace datasetd::testing
