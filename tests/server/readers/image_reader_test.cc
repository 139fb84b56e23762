#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Image, ReaderConformanceTest,
                         ::testing::Values("image_folder", "image_folder_split",
                                           "image_csv", "image_csv_header"));

namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kWhole = int64_t{1} << 40;

// A grey BMP of 2 x 1 pixels.
std::string TinyBmp() {
  std::string file(
      "BM\x3A\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x01\0\0\0"
      "\x01\0\x18\0",
      30);
  file.resize(54, '\0');
  return file + std::string("\x05\x05\x05\x09\x09\x09\0\0", 8);
}

absl::Status FolderStatus(const MemoryFileSystem& files,
                          std::map<std::string, std::string> options = {}) {
  return ReadAll(SpecOf("image_folder", "/d", "", options), files, kWhole)
      .status();
}

absl::StatusOr<AllSamples> ReadCsv(
    MemoryFileSystem& files, const std::string& text,
    std::map<std::string, std::string> options = {}) {
  files.Write("/d/list.csv", text);
  return ReadAll(SpecOf("image_csv", "/d/list.csv", "", options), files,
                 kWhole);
}

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(ImageFolderReaderTest, WithoutAClassOrWithAnEmptyOneIsInvalid) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  absl::Status status = FolderStatus(files);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("/d: holds no directory")));
  files.Write("/d/cat/1.bmp", TinyBmp());
  EXPECT_TRUE(FolderStatus(files).ok());
  files.Write("/d/dog/readme.txt", "none yet");
  status = FolderStatus(files);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("/d/dog: a class without an image")));
}

TEST(ImageFolderReaderTest, TheFirstGoodImageGivesTheShape) {
  MemoryFileSystem files;
  files.Write("/d/a/0.jpg", "damaged");
  files.Write("/d/a/1.bmp", TinyBmp());
  const auto reader = OpenReader(SpecOf("image_folder", "/d"), {files});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->info().num_samples, 2);
  EXPECT_THAT((*reader)->info().fields[0].shape, ElementsAre(1, 2, 3));
}

TEST(ImageFolderReaderTest, WhatIsNoFaultOfTheFirstImageEndsTheScan) {
  class FewDescriptors : public MemoryFileSystem {
   public:
    absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
        const std::string& path) const override {
      if (path != "/d/a/0.bmp") return MemoryFileSystem::Open(path);
      return absl::ResourceExhaustedError(path + ": too many open files");
    }
  };
  FewDescriptors files;
  files.Write("/d/a/0.bmp", TinyBmp());
  files.Write("/d/a/1.bmp", TinyBmp());
  const absl::Status status = FolderStatus(files);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(status), "/d/a/0.bmp: too many open files");
}

// Has a link to a class, of which List could not tell what it is.
class LinkToClass : public MemoryFileSystem {
 public:
  explicit LinkToClass(absl::StatusOr<FileInfo> target)
      : target_(std::move(target)) {
    Write("/d/a/1.bmp", TinyBmp());
    Write("/d/b", "");
  }
  absl::StatusOr<FileInfo> Stat(const std::string& path) const override {
    return path == "/d/b" && is_listed_ ? target_
                                        : MemoryFileSystem::Stat(path);
  }
  absl::StatusOr<std::vector<FileInfo>> List(const std::string& directory,
                                             OnEntry on_entry) const override {
    auto entries = MemoryFileSystem::List(directory, on_entry);
    is_listed_ = true;
    return entries;
  }

 private:
  const absl::StatusOr<FileInfo> target_;
  mutable bool is_listed_ = false;
};

TEST(ImageFolderReaderTest, AClassIsNotMissingBecauseItsLinkCannotBeFollowed) {
  const auto status_of = [](absl::StatusOr<FileInfo> target) {
    return FolderStatus(LinkToClass(std::move(target)));
  };
  EXPECT_TRUE(status_of(FileInfo{.path = "/d/b"}).ok());
  EXPECT_TRUE(status_of(absl::NotFoundError("dangles")).ok());
  EXPECT_TRUE(status_of(absl::InvalidArgumentError("a FIFO")).ok());
  for (const absl::Status& status :
       {absl::PermissionDeniedError("outside"),
        absl::ResourceExhaustedError("too many open files"),
        absl::UnavailableError("stale"), absl::UnknownError("no disk")}) {
    EXPECT_EQ(status_of(status), status);
  }
  EXPECT_THAT(status_of(FileInfo{.path = "/d/b", .is_directory = true}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/d/b: became a directory")));
}

TEST(ImageFolderReaderTest, ASplitThatCannotBeLookedAtIsNotMissing) {
  class Unavailable : public MemoryFileSystem {
   public:
    absl::StatusOr<FileInfo> Stat(const std::string& path) const override {
      if (path != "/d/train") return MemoryFileSystem::Stat(path);
      return absl::UnavailableError("/d/train: stale");
    }
  };
  Unavailable files;
  files.Write("/d/train/a/1.bmp", TinyBmp());
  const absl::Status status =
      OpenReader(SpecOf("image_folder", "/d", "train"), {files}).status();
  EXPECT_EQ(status, absl::UnavailableError("/d/train: stale"));
}

TEST(ImageFolderReaderTest, AFileThatChangedIsABadSample) {
  MemoryFileSystem files;
  for (const char* const path : {"/d/a/1.bmp", "/d/a/2.bmp"}) {
    files.Write(path, TinyBmp());
  }
  const auto reader = OpenReader(SpecOf("image_folder", "/d"), {files});
  ASSERT_TRUE(reader.ok()) << reader.status();
  files.Write("/d/a/2.bmp", TinyBmp());
  RawSample raw;
  EXPECT_TRUE((*reader)->Fetch(0, raw).ok());
  EXPECT_THAT((*reader)->Fetch(1, raw),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("/d/a/2.bmp: was changed after the load")));
}

TEST(ImageFolderReaderTest, OnlyBadImagesAreAnErrorThatSaysWhy) {
  MemoryFileSystem files;
  files.Write("/d/a/0.tif", std::string("II*\0", 4));
  files.Write("/d/a/1.png", "text");
  EXPECT_THAT(FolderStatus(files),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("/d/a/0.tif: a TIFF"),
                             HasSubstr("none of the first 2 samples"))));
}

TEST(ImageFolderReaderTest, AsItIsWantsTheChannelsOfTheFirst) {
  const GeneratedCase generated = LoadGeneratedCase("image_folder");
  MemoryFileSystem files = CopyToMemory(generated);
  std::string grey = TinyBmp();
  // One bit a pixel, of black and white.
  grey[28] = 1;
  grey[10] = 0x3E;
  grey.replace(54, 8, std::string("\0\0\0\0\xFF\xFF\xFF\0\x40\0\0\0", 12));
  files.Write(absl::StrCat(generated.directory, "/zoo/1.bmp"), grey);
  v1::DatasetSpec spec = generated.spec;
  EXPECT_TRUE(ReadAll(spec, files, kWhole).ok());
  SetOption(spec, "channels", "as_is");
  const absl::Status status = ReadAll(spec, files, kWhole).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("/zoo/1.bmp: field 'image': 1 channels, "
                                 "and the first image has 3")));
  SetOption(spec, "channels", "2");
  EXPECT_THAT(Message(ReadAll(spec, files, kWhole).status()),
              HasSubstr("option channels is '2'"));
}

TEST(ImageFolderReaderTest, ASplitIsADirectoryAndNothingElse) {
  MemoryFileSystem files;
  files.Write("/d/train/cat/1.bmp", TinyBmp());
  files.Write("/d/file", "x");
  EXPECT_TRUE(
      ReadAll(SpecOf("image_folder", "/d", "train"), files, kWhole).ok());
  for (const char* split : {"file", "..", "train/cat", "none"}) {
    EXPECT_THAT(OpenReader(SpecOf("image_folder", "/d", split), {files}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat("'", split, "'"))))
        << split;
  }
}

class ImageFolderLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    base_ = absl::StrCat(::testing::TempDir(), "/image_links");
    std::filesystem::remove_all(base_);
    for (const char* path : {"root/d/cat", "outside/dog"}) {
      std::filesystem::create_directories(absl::StrCat(base_, "/", path));
    }
    WriteImage("root/d/cat/1.bmp");
    WriteImage("outside/dog/1.bmp");
    auto files = CreateRootedFileSystem({absl::StrCat(base_, "/root")});
    ASSERT_TRUE(files.ok()) << files.status();
    files_ = *std::move(files);
  }
  void WriteImage(const char* path) {
    std::ofstream(absl::StrCat(base_, "/", path), std::ios::binary)
        << TinyBmp();
  }
  void Link(const char* target, const char* path) {
    std::filesystem::create_symlink(target, absl::StrCat(base_, "/", path));
  }
  absl::StatusOr<AllSamples> Read() {
    return ReadAll(SpecOf("image_folder", absl::StrCat(base_, "/root/d")),
                   *files_, kWhole);
  }

  std::string base_;
  std::unique_ptr<FileSystem> files_;
};

TEST_F(ImageFolderLinkTest, LinksWithinTheRootAreFollowed) {
  Link("cat", "root/d/tiger");
  const auto all = Read();
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->info.class_names, ElementsAre("cat", "tiger"));
  EXPECT_EQ(all->info.num_samples, 2);
}

TEST_F(ImageFolderLinkTest, ALinkToAClassOutsideIsDenied) {
  Link("../../outside/dog", "root/d/dog");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kPermissionDenied,
                               HasSubstr("/root/d/dog")));
}

TEST_F(ImageFolderLinkTest, ALinkToAnImageOutsideIsABadSample) {
  Link("../../../outside/dog/1.bmp", "root/d/cat/2.bmp");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kPermissionDenied,
                               HasSubstr("/cat/2.bmp")));
}

TEST_F(ImageFolderLinkTest, ADirectoryWithinItselfEnds) {
  Link(".", "root/d/cat/again");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("directories deep")));
}

TEST(ImageCsvReaderTest, DamagedLinesAreNamed) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  const std::pair<std::string, const char*> lines[] = {
      {"1.bmp,1\n1.bmp\n", "line 2: 1 columns, expected 2"},
      {"1.bmp,1,2\n", "line 1: 3 columns, expected 2"},
      {"path,label\n\n1.bmp,1,2\n", "line 3: 3 columns, expected 2"},
      {"1.bmp,\"x\n", "line 1: a quote does not end"},
      {",1\n", "line 1: the path is empty"},
      {"path\n1.bmp\n", "line 1: no column for label_column"},
      {std::string(70'000, 'x'), "line 1: more than 65536 bytes"},
      {"path,label\n", "zero samples"},
      {"\n \n", "zero samples"},
  };
  for (const auto& [text, message] : lines) {
    EXPECT_THAT(ReadCsv(files, text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("/d/list.csv"), HasSubstr(message))));
  }
}

TEST(ImageCsvReaderTest, ColumnsMustBeInTheHeader) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  EXPECT_TRUE(ReadCsv(files, "file,a,b\n1.bmp,x,2\n",
                      {{"label_column", "b"}, {"path_column", "file"}})
                  .ok());
  EXPECT_THAT(
      Message(ReadCsv(files, "file,a\n1.bmp,x\n", {{"label_column", "c"}})
                  .status()),
      AllOf(HasSubstr("label_column 'c'"), HasSubstr("file, a")));
  EXPECT_THAT(
      Message(ReadCsv(files, "file,a\n1.bmp,x\n", {{"label_column", "file"}})
                  .status()),
      HasSubstr("the same column"));
  EXPECT_THAT(
      Message(ReadCsv(files, "1.bmp,x\n", {{"label_column", "a"}}).status()),
      HasSubstr("need a header"));
}

TEST(ImageCsvReaderTest, NumbersAreLabelsOnlyIfAllAre) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  auto all = ReadCsv(files, "1.bmp,5\n1.bmp,x\n");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->info.class_names, ElementsAre("5", "x"));
  all = ReadCsv(files, "1.bmp,-1\n1.bmp,3\n");
  EXPECT_THAT(all->info.class_names, ElementsAre("-1", "3"));
}

TEST(ImageCsvReaderTest, AMissingFileIsABadSampleNotABadList) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  files.Write("/d/list.csv", "1.bmp,1\n2.bmp,2\n");
  const auto reader = OpenReader(SpecOf("image_csv", "/d/list.csv"), {files});
  ASSERT_TRUE(reader.ok()) << reader.status();
  RawSample raw;
  EXPECT_TRUE((*reader)->Fetch(0, raw).ok());
  EXPECT_EQ((*reader)->Fetch(1, raw).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ((*reader)->Locate(1).path, "/d/2.bmp");
}

TEST(ImageCsvReaderTest, AFileThatCannotBeLookedAtNowEndsTheScan) {
  class OneError : public MemoryFileSystem {
   public:
    absl::StatusOr<FileInfo> Stat(const std::string& path) const override {
      if (path == "/d/2.bmp" && !error.ok()) return error;
      return MemoryFileSystem::Stat(path);
    }
    absl::Status error;
  };
  OneError files;
  files.Write("/d/1.bmp", TinyBmp());
  files.Write("/d/2.bmp", TinyBmp());
  files.Write("/d/list.csv", "1.bmp,1\n2.bmp,2\n");
  const auto open = [&](const absl::Status& error) {
    files.error = error;
    return OpenReader(SpecOf("image_csv", "/d/list.csv"), {files}).status();
  };
  for (const absl::Status& error :
       {absl::ResourceExhaustedError("too many open files"),
        absl::UnavailableError("stale"), absl::CancelledError("cancelled")}) {
    EXPECT_EQ(open(error), error);
  }
  for (const absl::Status& error :
       {absl::NotFoundError("missing"), absl::PermissionDeniedError("outside"),
        absl::InvalidArgumentError("a FIFO")}) {
    EXPECT_TRUE(open(error).ok()) << error;
  }
}

}  // namespace
}  // namespace datasetd::testing
