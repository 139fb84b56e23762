#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats/formats.h"
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

// A member of an archive, as POSIX.1-1988 has it.
std::string UstarMember(const std::string& name, const std::string& content) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  header.replace(124, 11, absl::StrFormat("%011o", content.size()));
  header.replace(136, 11, std::string(11, '0'));
  header.replace(156, 1, "0");
  header.replace(257, 8, std::string("ustar\00000", 8));
  header.replace(148, 8, std::string(8, ' '));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 7, absl::StrFormat("%06o", sum) + std::string(1, '\0'));
  std::string padded = content;
  padded.resize((content.size() + 511) / 512 * 512);
  return header + padded;
}

TEST(JoinReaderTest, APartMayHaveAsManyMembersAsASampleMay) {
  constexpr int kMembers = 256;
  std::string tar;
  for (int i = 0; i < kMembers; ++i) {
    std::string array("\x93NUMPY\1\0\x76\0", 10);
    array += "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }";
    array.resize(127, ' ');
    array += '\n';
    array += static_cast<char>(i);
    tar += UstarMember(absl::StrCat("s.m", i, ".npy"), array);
  }
  tar.resize(tar.size() + 1024);
  MemoryFileSystem files;
  files.Write("/j/a.tar", tar);
  files.Write("/j/b.bin", "x");
  v1::DatasetSpec spec = SpecOf("join", "/j");
  SetOptions(spec, {{"parts", "webdataset:a.tar,raw:b.bin"},
                    {"1.shape", "1"},
                    {"fields", "first:m0,last:m255,data"}});
  const auto all = ReadAll(spec, files, 1);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->fields,
              ::testing::ElementsAre(std::string(1, '\0'), "\xff", "x"));
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

TEST(JoinReaderTest, APartIsTakenOfTheJoinNotOfItsParts) {
  EXPECT_THAT(
      ErrorOf({{"0.part", "0/2"}, {"1.part", "0/2"}, {"2.part", "0/2"}}),
      HasSubstr("give part without a number, to the join"));
}

TEST(JoinReaderTest, CompressedFilesAreAPart) {
  const GeneratedCase generated = LoadGeneratedCase("mnist_gzip");
  const MemoryFileSystem files = CopyToMemory(generated);
  v1::DatasetSpec spec = generated.spec;
  spec.set_format("join");
  SetOptions(spec, {{"parts", "mnist:."}, {"0.split", spec.split()}});
  spec.set_split("");
  const auto all = ReadAll(spec, files, 3);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->fields, generated.samples);
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
