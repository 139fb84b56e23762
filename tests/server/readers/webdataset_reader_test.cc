#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

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

TEST(WebdatasetReaderTest, ASampleWithoutAFieldStaysBad) {
  const GeneratedCase generated = LoadGeneratedCase("webdataset_gnu");
  const MemoryFileSystem files = CopyToMemory(generated);
  v1::DatasetSpec spec = generated.spec;
  SetOption(spec, "fields", "a:png");
  const auto reader = OpenReader(spec, {files});
  ASSERT_THAT(reader, IsOk());
  RawSample raw;
  EXPECT_THAT((*reader)->Fetch(0, raw), IsOk());
  // It is a JPEG.
  const absl::Status status = (*reader)->Fetch(1, raw);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(IsInBytes(status));
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

TEST(WebdatasetReaderTest, ShardsAreOpenedAgainIfTheyAreUnchanged) {
  for (const char* const name : {"webdataset_shards", "webdataset_gzip"}) {
    const GeneratedCase generated = LoadGeneratedCase(name);
    MemoryFileSystem files = CopyToMemory(generated);
    const auto reader = OpenReader(generated.spec, {files});
    ASSERT_THAT(reader, IsOk());
    EXPECT_EQ(files.num_open_files(), 0) << name;
    const std::string path = (*reader)->info().files[0].path;
    RawSample raw;
    EXPECT_THAT((*reader)->Fetch(0, raw), IsOk());
    EXPECT_EQ(files.num_open_files(), 1) << name;

    const auto late = OpenReader(generated.spec, {files});
    files.Write(path, files.contents().at(path));
    EXPECT_THAT((*late)->Fetch(0, raw),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(path + ": was changed after the load")));
  }
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
