#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/testing/dataset_specs.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Join, ReaderConformanceTest,
                         ::testing::Values("join"));

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(
    const std::map<std::string, std::string>& changes,
    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const GeneratedCase generated = LoadGeneratedCase("join");
  MemoryFileSystem files = CopyToMemory(generated);
  files.Write(generated.directory + "/few.bin", "123");
  v1::DatasetSpec spec = generated.spec;
  for (const auto& [key, value] : changes) SetOption(spec, key, value);
  const absl::Status status = ReadAll(spec, files, 2).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(JoinReaderTest, PartsAndFieldsAreChecked) {
  EXPECT_THAT(ErrorOf({{"parts", "join:x"}}), HasSubstr("no join"));
  EXPECT_THAT(ErrorOf({{"parts", "npy:/etc"}}), HasSubstr("paths below"));
  EXPECT_THAT(ErrorOf({{"parts", "npy:audio"}}),
              HasSubstr("no option '2.shape'"));
  EXPECT_THAT(ErrorOf({{"9.shape", "3"}}), HasSubstr("no option '9.shape'"));
  EXPECT_THAT(ErrorOf({{"1.split", "train"}}), HasSubstr("no splits"));
  EXPECT_THAT(ErrorOf({{"fields", "x"}}), HasSubstr("no part has a field 'x'"));
  EXPECT_THAT(ErrorOf({{"fields", "x:7.image"}}),
              HasSubstr("a part's place before the dot"));
  EXPECT_THAT(ErrorOf({{"fields", "a:label,b:0.label"}}),
              HasSubstr("chosen twice"));
  EXPECT_THAT(ErrorOf({{"fields", ""}}),
              HasSubstr("field 'label' is in part 0 and in 1"));
}

TEST(JoinReaderTest, PartsMustAgreeInLength) {
  EXPECT_THAT(
      ErrorOf({{"parts", "webdataset:faces-{0..1}.tar,npy:audio,raw:few.bin"},
               {"2.shape", "1"}}),
      AllOf(HasSubstr("few.bin holds 3 samples"), HasSubstr("holds 6")));
}

TEST(JoinReaderTest, WhatReadsInOrderOnlyIsRefusedWithTheWayOut) {
  const GeneratedCase generated = LoadGeneratedCase("mnist_test");
  const MemoryFileSystem files = CopyToMemory(generated);
  v1::DatasetSpec spec = generated.spec;
  spec.set_format("join");
  spec.set_split("");
  SetOptions(spec, {{"parts", "mnist:."}, {"0.split", "test"}});
  const absl::Status status = OpenReader(spec, {files}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("mnist cannot be a part"), HasSubstr("in order only")));
}

TEST(JoinReaderTest, APartOfAFormatOfThePythonPackageIsRefused) {
  EXPECT_THAT(
      ErrorOf(
          {{"parts", "webdataset:faces-{0..1}.tar,npz:a.npz,raw:codes.bin"}}),
      HasSubstr("format \"npz\" is read by the job: python -m datasetd load "
                "NAME npz PATH, or datasetd.sources.npz"));
}

}  // namespace
}  // namespace datasetd::testing
