#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats/formats.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Npy, ReaderConformanceTest,
                         ::testing::Values("npy_images", "npy_every_dtype",
                                           "npy_image_rules",
                                           "npy_images_option",
                                           "npy_masks_option",
                                           "npy_one_sample"));

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Npy(const std::string& descr, const std::string& shape,
                size_t data_bytes, char fill = '\0') {
  const std::string dict =
      absl::StrCat("{'descr': '", descr,
                   "', 'fortran_order': False, 'shape': ", shape, ", }\n");
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(dict.size()) +
         '\0' + dict + std::string(data_bytes, fill);
}

absl::StatusOr<AllSamples> Read(const FileSystem& files,
                                const std::string& images = "") {
  v1::DatasetSpec spec = SpecOf("npy", "/n");
  if (!images.empty()) SetOption(spec, "images", images);
  return ReadAll(spec, files, 2);
}

std::string ErrorOf(const FileSystem& files, const std::string& images = "") {
  const absl::Status status = Read(files, images).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(NpyReaderTest, SampleCountsMustAgree) {
  MemoryFileSystem files;
  files.Write("/n/a.npy", Npy("|u1", "(3,)", 3));
  files.Write("/n/b.npy", Npy("|u1", "(4,)", 4));
  EXPECT_EQ(ErrorOf(files), "/n/b.npy holds 4 samples, but /n/a.npy holds 3");
}

TEST(NpyReaderTest, OtherFilesAreLeftOutAndAnEmptyDirectoryIsInvalid) {
  MemoryFileSystem files;
  files.Write("/n/readme.txt", "text");
  EXPECT_THAT(ErrorOf(files), HasSubstr("holds no .npy file"));
  files.Write("/n/a.npy", Npy("|u1", "(3,)", 3));
  EXPECT_TRUE(Read(files).ok());
}

TEST(NpyReaderTest, FilesAreOpenedAgainIfTheyAreUnchanged) {
  MemoryFileSystem files;
  files.Write("/n/a.npy", Npy("|u1", "(3,)", 3, '\5'));
  const auto reader = OpenReader(SpecOf("npy", "/n"), {files});
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ(files.num_open_files(), 0);
  std::vector<uint8_t> values(2);
  const absl::Span<uint8_t> buffer = absl::MakeSpan(values);
  EXPECT_THAT((*reader)->Read(1, 2, {&buffer, 1}), IsOk());
  EXPECT_EQ(values, std::vector<uint8_t>(2, 5));

  const auto late = OpenReader(SpecOf("npy", "/n"), {files});
  files.Write("/n/a.npy", Npy("|u1", "(3,)", 3, '\6'));
  EXPECT_THAT((*late)->Read(1, 2, {&buffer, 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/n/a.npy: was changed after the load")));
}

TEST(NpyReaderTest, FieldNamesAreIdentifiers) {
  for (const char* name : {"/n/1st.npy", "/n/my image.npy", "/n/.npy",
                           "/n/a-b.npy", "/n/\xc3\xa4.npy"}) {
    MemoryFileSystem files;
    files.Write(name, Npy("|u1", "(3,)", 3));
    EXPECT_THAT(ErrorOf(files), HasSubstr("cannot name a field")) << name;
  }
}

TEST(NpyReaderTest, BoolsOfAnotherValueAreInvalid) {
  MemoryFileSystem files;
  files.Write("/n/a.npy", Npy("|b1", "(3, 2)", 6, '\1'));
  EXPECT_TRUE(Read(files).ok());
  files.Write("/n/a.npy", Npy("|b1", "(3, 2)", 5, '\1') + '\2');
  EXPECT_EQ(ErrorOf(files),
            "/n/a.npy: sample 2: a bool of value 2, expected 0 or 1");
}

TEST(NpyReaderTest, WhatCannotBeAnImageIsAnArray) {
  MemoryFileSystem files;
  files.Write("/n/a.npy", Npy("<i8", "(2, 4, 4, 2)", 512));
  auto all = Read(files);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_FALSE(all->info.fields[0].is_image);
  EXPECT_THAT(Read(files, "a").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("/n/a.npy: images are uint8"),
                             HasSubstr("not int64"))));
}

TEST(NpyReaderTest, ChannelsFirstIsRefusedWithTheWayOut) {
  MemoryFileSystem files;
  files.Write("/n/image.npy", Npy("|u1", "(2, 3, 8, 8)", 384));
  EXPECT_THAT(ErrorOf(files),
              AllOf(HasSubstr("/n/image.npy"), HasSubstr("(2, 3, 8, 8)"),
                    HasSubstr("channels last"), HasSubstr("images=-image")));
  auto all = Read(files, "-image");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_FALSE(all->info.fields[0].is_image);
}

TEST(NpyReaderTest, ImagesOptionIsCheckedAgainstTheFields) {
  MemoryFileSystem files;
  files.Write("/n/a.npy", Npy("|u1", "(3,)", 3));
  EXPECT_THAT(ErrorOf(files, "b"), HasSubstr("names 'b'"));
  EXPECT_THAT(ErrorOf(files, "a,,a"), HasSubstr("'a,,a'"));
  EXPECT_THAT(ErrorOf(files, "a,-a"), HasSubstr("each once"));
  EXPECT_THAT(ErrorOf(files, "a"), HasSubstr("expected an image"));
  EXPECT_TRUE(Read(files, " -a ").ok());
}

TEST(NpyReaderTest, MasksOptionIsCheckedAgainstTheFields) {
  MemoryFileSystem files;
  files.Write("/n/a.npy", Npy("|u1", "(3,)", 3));
  files.Write("/n/b.npy", Npy("|u1", "(3, 2, 2)", 12));
  const auto error_of = [&](const std::string& masks,
                            const std::string& images) {
    v1::DatasetSpec spec =
        SpecOf("npy", "/n", "", {{"masks", masks}, {"images", images}});
    const absl::Status status = ReadAll(spec, files, 2).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error_of("c", "b"),
              AllOf(HasSubstr("option masks"), HasSubstr("names 'c'")));
  EXPECT_THAT(error_of("b,b", "b"),
              AllOf(HasSubstr("option masks"), HasSubstr("each once")));
  EXPECT_THAT(error_of("a", "b"), HasSubstr("expected an image"));
  EXPECT_THAT(error_of("b", "-b"), HasSubstr("contradict each other"));
}

TEST(NpyReaderTest, DeclaredSizesAreCheckedAgainstTheFile) {
  MemoryFileSystem files;
  files.Write("/n/a.npy", Npy("|u1", "(1, 3000000000)", 8));
  EXPECT_THAT(Read(files),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("/n/a.npy: 8 bytes after the header"),
                             HasSubstr("expected 3000000000"))));
}

TEST(NpyReaderTest, SamplesOfMoreThan31BitsAreRefused) {
  const std::string directory = absl::StrCat(::testing::TempDir(), "/sparse");
  const std::string path = absl::StrCat(directory, "/a.npy");
  std::filesystem::create_directories(directory);
  const std::string header = Npy("|u1", "(1, 3000000000)", 0);
  std::ofstream(path, std::ios::binary) << header;
  std::filesystem::resize_file(path, header.size() + 3'000'000'000);
  auto files = CreateRootedFileSystem({directory});
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(OpenReader(SpecOf("npy", directory), {**files}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than 2^31 - 1 elements a sample")));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace datasetd::testing
