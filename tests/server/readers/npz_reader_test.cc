#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Npz, ReaderConformanceTest,
                         ::testing::Values("npz_stored", "npz_deflated",
                                           "npz_chosen", "npz_zeros"));

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const GeneratedCase& generated,
                    const MemoryFileSystem& files,
                    const std::map<std::string, std::string>& options) {
  SourceSpec spec = generated.spec;
  spec.options = options;
  const absl::Status status = ReadAll(spec, files, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(NpzReaderTest, MembersAreChosenAndMustAgree) {
  const GeneratedCase generated = LoadGeneratedCase("npz_chosen");
  const MemoryFileSystem files = CopyToMemory(generated);
  EXPECT_THAT(
      ErrorOf(generated, files, {}),
      AllOf(HasSubstr("x_train.npy holds 13 samples"),
            HasSubstr("x_test.npy holds 3"), HasSubstr("option fields")));
  EXPECT_THAT(ErrorOf(generated, files, {{"fields", "a:x"}}),
              AllOf(HasSubstr("no array 'x'"), HasSubstr("y_test.npy")));
  EXPECT_THAT(ErrorOf(generated, files, {{"fields", "a:x_test,b:x_test"}}),
              HasSubstr("chosen twice"));
  EXPECT_THAT(ErrorOf(generated, files, {{"fields", "a,a"}}),
              HasSubstr("each field once"));
  EXPECT_THAT(ErrorOf(generated, files, {{"fields", "a-b:x_test"}}),
              HasSubstr("option fields is 'a-b:x_test'"));
  EXPECT_THAT(
      ErrorOf(generated, files, {{"fields", "y_test"}, {"images", "x_test"}}),
      HasSubstr("option images names 'x_test'"));
}

TEST(NpzReaderTest, WhatIsNoZipIsNamed) {
  const GeneratedCase generated = LoadGeneratedCase("npz_stored");
  MemoryFileSystem files;
  files.Write(generated.files[0], "\x93NUMPY something else altogether");
  EXPECT_THAT(ErrorOf(generated, files, {}),
              HasSubstr("offset 0: expected a zip archive"));
}

TEST(NpzReaderTest, AWrongByteIsFoundByTheChecksum) {
  const GeneratedCase generated = LoadGeneratedCase("npz_stored");
  MemoryFileSystem files = CopyToMemory(generated);
  std::string content = files.contents().at(generated.files[0]);
  const std::string& image = generated.samples[1];
  const size_t place = content.find(image.substr(100, 16));
  ASSERT_NE(place, std::string::npos);
  content[place] ^= 1;
  files.Write(generated.files[0], content);
  const absl::Status status = ReadAll(generated.spec, files, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("wrong checksum"));
}

}  // namespace
}  // namespace datasetd::testing
