// Samples that are looked at when a source is opened, and the lists of them
// that it keeps, have their memory counted.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/dataset/decode_budget.h"
#include "server/readers/formats/formats.h"
#include "tests/server/readers/generated_data.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kUid = 1000;

class FirstSampleTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FirstSampleTest, IsChargedWhileItIsLookedAt) {
  const GeneratedCase generated = LoadGeneratedCase(GetParam());
  const MemoryFileSystem files = CopyToMemory(generated);
  DecodeBudget budget{DecodeBudget::Limits()};
  const auto reader =
      OpenReader(generated.spec,
                 {.files = files, .account = {.budget = &budget, .uid = kUid}});
  ASSERT_THAT(reader, IsOk());
  EXPECT_GT(budget.peak_bytes(), 0);
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST_P(FirstSampleTest, IsRefusedWhereItIsMoreThanASampleMayTake) {
  const GeneratedCase generated = LoadGeneratedCase(GetParam());
  const MemoryFileSystem files = CopyToMemory(generated);
  DecodeBudget budget({.sample_bytes = 1, .total_bytes = 2});
  EXPECT_THAT(
      OpenReader(generated.spec,
                 {.files = files, .account = {.budget = &budget, .uid = kUid}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("max_sample_memory_mib")));
  EXPECT_EQ(budget.used_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, FirstSampleTest,
                         ::testing::Values("image_folder", "webdataset_gnu",
                                           "join"));

class SampleListTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SampleListTest, IsChargedWhileTheSourceLives) {
  const GeneratedCase generated = LoadGeneratedCase(GetParam());
  const MemoryFileSystem files = CopyToMemory(generated);
  DecodeBudget lists{DecodeBudget::Limits()};
  {
    const auto reader =
        OpenReader(generated.spec,
                   {.files = files, .account = {.uid = kUid, .lists = &lists}});
    ASSERT_THAT(reader, IsOk());
    EXPECT_GT(lists.used_bytes(), 0);
  }
  EXPECT_EQ(lists.used_bytes(), 0);
}

TEST_P(SampleListTest, IsRefusedWhereItIsMoreThanTheUserMayHave) {
  const GeneratedCase generated = LoadGeneratedCase(GetParam());
  const MemoryFileSystem files = CopyToMemory(generated);
  DecodeBudget lists({.sample_bytes = 1, .total_bytes = 2});
  EXPECT_THAT(
      OpenReader(generated.spec,
                 {.files = files, .account = {.uid = kUid, .lists = &lists}}),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("lists of samples and files of this user's")));
  EXPECT_EQ(lists.used_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, SampleListTest,
                         ::testing::Values("webdataset_gnu",
                                           "webdataset_shards", "image_folder",
                                           "image_csv", "join"));

// The most that `spec` may be charged while it is opened.
constexpr int64_t kFew = 1 << 20;

absl::Status OpenWithFew(const v1::DatasetSpec& spec, const FileSystem& files) {
  DecodeBudget lists({.sample_bytes = kFew, .total_bytes = 2 * kFew});
  const absl::Status status =
      OpenReader(spec,
                 {.files = files, .account = {.uid = kUid, .lists = &lists}})
          .status();
  EXPECT_EQ(lists.used_bytes(), 0);
  EXPECT_LE(lists.peak_bytes(), kFew);
  return status;
}

const auto kAreTooMany = StatusIs(absl::StatusCode::kResourceExhausted,
                                  HasSubstr("lists of samples and files"));

TEST(FileListTest, RowsOfACsvAreChargedBeforeTheyAreKept) {
  MemoryFileSystem files;
  const std::string directory = "/" + std::string(2000, 'd');
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "a,0\n";
  files.Write(directory + "/list.csv", text);
  EXPECT_THAT(OpenWithFew(SpecOf("image_csv", directory + "/list.csv"), files),
              kAreTooMany);
}

TEST(FileListTest, LabelsOfACsvAreCharged) {
  MemoryFileSystem files;
  std::string text;
  for (int i = 0; i < 400; ++i) {
    absl::StrAppend(&text, "a,", std::string(300, 'l'), i, "\n");
  }
  files.Write("/list.csv", text);
  EXPECT_THAT(OpenWithFew(SpecOf("image_csv", "/list.csv"), files),
              kAreTooMany);
}

// Each directory has two links to the next, so that the last has 2^20 paths.
class LinkedDirectories : public MemoryFileSystem {
 public:
  absl::StatusOr<FileInfo> Stat(const std::string& path) const override {
    return FileInfo{.path = path, .is_directory = true};
  }
  absl::StatusOr<std::vector<FileInfo>> List(const std::string& directory,
                                             OnEntry on_entry) const override {
    ++num_lists;
    std::vector<FileInfo> entries;
    const auto depth = std::count(directory.begin(), directory.end(), '/');
    if (depth > 20) return entries;
    for (const char* const name : {"/a", "/b"}) {
      entries.push_back({.path = directory + name, .is_directory = true});
      DATASETD_RETURN_IF_ERROR(on_entry(entries.back()));
    }
    return entries;
  }
  mutable int num_lists = 0;
};

TEST(FileListTest, DirectoriesThatLinksRepeatAreCharged) {
  LinkedDirectories files;
  EXPECT_THAT(OpenWithFew(SpecOf("image_folder", "/root"), files), kAreTooMany);
  EXPECT_LT(files.num_lists, 20'000);
}

TEST(FileListTest, ADirectoryIsChargedWhileItIsListed) {
  // Nothing that these formats keep.
  MemoryFileSystem files;
  for (int i = 0; i < 1500; ++i) {
    files.Write(absl::StrCat("/d/a/", std::string(400, 'n'), i, ".txt"), "x");
  }
  for (const auto& [format, path] :
       {std::pair("image_folder", "/d"), std::pair("image_folder", "/d/a"),
        std::pair("npy", "/d/a")}) {
    EXPECT_THAT(OpenWithFew(SpecOf(format, path), files), kAreTooMany)
        << format << " " << path;
  }
}

TEST(FileListTest, WhatIsNotKeptIsChargedOnce) {
  MemoryFileSystem files;
  const GeneratedCase generated = LoadGeneratedCase("image_folder");
  const std::string image = ReadFileOrDie(generated.files.front());
  for (int d = 0; d < 10; ++d) {
    const std::string directory = absl::StrCat("/d/", d);
    files.Write(directory + "/1.jpg", image);
    for (int i = 0; i < 200; ++i) {
      files.Write(absl::StrCat(directory, "/", std::string(400, 'n'), i), "x");
    }
  }
  EXPECT_THAT(OpenWithFew(SpecOf("image_folder", "/d"), files), IsOk());
}

TEST(FileListTest, NamesOfShardsAreChargedBeforeTheyAreMade) {
  const MemoryFileSystem files;
  EXPECT_THAT(OpenWithFew(SpecOf("webdataset", "/{0..9999}.tar"), files),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(
      OpenWithFew(SpecOf("webdataset", absl::StrCat("/", std::string(2000, 'd'),
                                                    "{0..9999}.tar")),
                  files),
      kAreTooMany);
}

TEST(FileListTest, ShardsAreCharged) {
  MemoryFileSystem files;
  const std::string directory = std::string(100, 'd');
  for (int i = 0; i < 1500; ++i) {
    files.Write(absl::StrCat("/", directory, "/", i), "x");
  }
  EXPECT_THAT(OpenWithFew(SpecOf("webdataset",
                                 absl::StrCat("/", directory, "/{0..1499}")),
                          files),
              kAreTooMany);
}

TEST(FileListTest, AScanOfACsvEndsOnceItIsCancelled) {
  class Cancelled : public MemoryFileSystem {
   public:
    absl::StatusOr<FileInfo> Stat(const std::string& path) const override {
      if (path == "/list.csv") return MemoryFileSystem::Stat(path);
      ++num_stats;
      return absl::CancelledError("the load was cancelled");
    }
    mutable int num_stats = 0;
  };
  Cancelled files;
  files.Write("/list.csv", "a,0\nb,0\n");
  EXPECT_THAT(OpenReader(SpecOf("image_csv", "/list.csv"), {files}),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(files.num_stats, 1);
}

}  // namespace
}  // namespace datasetd::testing
