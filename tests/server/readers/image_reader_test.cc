#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats/formats.h"
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
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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

absl::StatusOr<AllSamples> ReadFolder(const MemoryFileSystem& files,
                                      const std::string& more = "") {
  return ReadAll(With(SpecOf("image_folder", "/d"), more), files, kWhole);
}

// The values of field `label`.
template <typename T = int64_t>
std::vector<T> LabelsOf(const AllSamples& all) {
  std::vector<T> labels(all.fields[1].size() / sizeof(T));
  std::memcpy(labels.data(), all.fields[1].data(), all.fields[1].size());
  return labels;
}

// "! ..." is a warning.
std::vector<std::string> NotesOf(const AllSamples& all) {
  std::vector<std::string> texts;
  for (const LoadNote& note : all.info.notes) {
    texts.push_back((note.is_warning ? "! " : "") + note.text);
  }
  return texts;
}

TEST(ImageFolderReaderTest, AnEmptyClassKeepsItsLabel) {
  MemoryFileSystem files;
  files.Write("/d/a/1.bmp", TinyBmp());
  files.Write("/d/b/readme.txt", "none yet");
  files.Write("/d/b/1.gif", "GIF8");
  files.Write("/d/c/x/1.bmp", TinyBmp());
  const auto all = ReadFolder(files);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->info.class_names, ElementsAre("a", "b", "c"));
  EXPECT_THAT(LabelsOf(*all), ElementsAre(0, 2));
  EXPECT_THAT(NotesOf(*all), ElementsAre("! no sample of class 'b'",
                                         "left out: 1 .gif file, 1 .txt file"));
}

TEST(ImageFolderReaderTest, WithoutAnImageItIsInvalid) {
  MemoryFileSystem files;
  files.Write("/d/list.txt", "");
  EXPECT_THAT(FolderStatus(files),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("/d: holds no directory, expected one for "
                                 "each class; it has 1 .txt file")));
  files.Write("/d/a/1.gif", "GIF8");
  EXPECT_THAT(FolderStatus(files),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("/d: no image in the directories of its "
                                 "classes; it has 1 .gif file, 1 .txt file")));
}

TEST(ImageFolderReaderTest, GivenClassesHaveTheirOrderAndMayBeEmpty) {
  MemoryFileSystem files;
  files.Write("/d/a/1.bmp", TinyBmp());
  files.Write("/d/c/1.bmp", TinyBmp());
  files.Write("/d/c/2.bmp", TinyBmp());
  const std::string given = "class_names: ['c', 'b', 'a']";
  auto all = ReadFolder(files, given);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->info.class_names, ElementsAre("c", "b", "a"));
  EXPECT_THAT(LabelsOf(*all), ElementsAre(2, 0, 0));
  EXPECT_THAT(NotesOf(*all), ElementsAre("no sample of class 'b'"));
  files.Write("/d/other/1.bmp", TinyBmp());
  files.Write("/d/other/2.bmp", TinyBmp());
  EXPECT_THAT(ReadFolder(files, given),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("/d/other: class 'other' is not one of "
                                       "the 3 class names"),
                             HasSubstr("ignore_other_classes"))));
  all = ReadFolder(files, given + " ignore_other_classes: true");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(LabelsOf(*all), ElementsAre(2, 0, 0));
  EXPECT_THAT(NotesOf(*all),
              Contains("left out: 2 samples of classes that were not given: "
                       "'other'"));
  EXPECT_THAT(
      ReadFolder(files, "class_names: 'none' ignore_other_classes: true"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("/d: no image of a class that was given")));
}

TEST(ImageFolderReaderTest, HiddenDirectoriesAreNoClasses) {
  MemoryFileSystem files;
  files.Write("/d/.ipynb_checkpoints/1.bmp", TinyBmp());
  files.Write("/d/a/1.bmp", TinyBmp());
  files.Write("/d/a/.DS_Store", "");
  files.Write("/d/b/.ipynb_checkpoints/1-checkpoint.bmp", TinyBmp());
  const auto all = ReadFolder(files);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->info.class_names, ElementsAre("a", "b"));
  EXPECT_THAT(LabelsOf(*all), ElementsAre(0, 1));
  EXPECT_THAT(
      NotesOf(*all),
      ElementsAre("hidden directories are no classes: '.ipynb_checkpoints'",
                  "! 1 image is read from hidden directories below the "
                  "classes, such as copies in .ipynb_checkpoints"));
}

TEST(ImageFolderReaderTest, AFlatDirectoryHasNoLabels) {
  MemoryFileSystem files;
  files.Write("/d/.git/1.bmp", TinyBmp());
  files.Write("/d/1.bmp", TinyBmp());
  files.Write("/d/2.bmp", TinyBmp());
  const auto all = ReadFolder(files);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->info.num_samples, 2);
  ASSERT_EQ(all->info.fields.size(), 1u);
  EXPECT_EQ(all->info.fields[0].name, "image");
  EXPECT_THAT(NotesOf(*all),
              Contains("there are no directories of classes, so that the "
                       "images have no label"));
  EXPECT_THAT(ReadFolder(files, "class_names: 'a'"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("/d: holds no directory")));
}

TEST(ImageFolderReaderTest, ImagesBesideTheClassesAreLeftOut) {
  MemoryFileSystem files;
  files.Write("/d/a/1.bmp", TinyBmp());
  files.Write("/d/1.bmp", TinyBmp());
  files.Write("/d/2.JPG", TinyBmp());
  files.Write("/d/README", "");
  const auto all = ReadFolder(files);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->info.num_samples, 1);
  EXPECT_THAT(NotesOf(*all),
              ElementsAre("left out: 2 images beside the directories of the "
                          "classes, 1 file without an extension"));
}

TEST(ImageFolderReaderTest, ARootOfSplitsIsAWarning) {
  const auto notes_of = [](const std::vector<std::string>& classes,
                           const std::string& more = "") {
    MemoryFileSystem files;
    for (const std::string& name : classes) {
      files.Write(absl::StrCat("/d/", name, "/x/1.bmp"), TinyBmp());
    }
    return NotesOf(ReadFolder(files, more).value());
  };
  const char kWarning[] = "which look like splits: split='";
  EXPECT_THAT(notes_of({"train", "val"}),
              ElementsAre("! the classes are 'train', 'val', which look like "
                          "splits: split='train' reads one of them"));
  EXPECT_THAT(notes_of({"Test", "docs", "Validation"}),
              Contains(HasSubstr(kWarning)));
  EXPECT_THAT(notes_of({"train"}), Contains(HasSubstr(kWarning)));
  // Vehicles.
  EXPECT_THAT(notes_of({"bus", "car", "train"}), IsEmpty());
  EXPECT_THAT(notes_of({"eval", "test"}, "class_names: ['eval', 'test']"),
              IsEmpty());
}

TEST(ImageFolderReaderTest, ASplitIsComparedWithTheOneBesideIt) {
  MemoryFileSystem files;
  const auto warnings_of = [&](const std::string& path,
                               const std::string& split,
                               const std::string& more = "") {
    const auto all =
        ReadAll(With(SpecOf("image_folder", path, split), more), files, kWhole);
    return NotesOf(all.value());
  };
  for (const char* const path :
       {"/d/train/a/1.bmp", "/d/train/b/1.bmp", "/d/val/a/1.bmp",
        "/d/val/b/1.bmp", "/d/other/z/1.bmp", "/d/test/1.bmp"}) {
    files.Write(path, TinyBmp());
  }
  EXPECT_THAT(warnings_of("/d", "val"), IsEmpty());
  files.Write("/d/train/c/1.bmp", TinyBmp());
  const auto is_warning = [](const char* own, const char* other) {
    return Contains(HasSubstr(
        absl::StrCat("! '", own, "' and '", other,
                     "' beside it have other classes, so that their labels "
                     "differ: 'c' is only in 'train'; load both with the same "
                     "classes=")));
  };
  EXPECT_THAT(warnings_of("/d", "val"), is_warning("val", "train"));
  EXPECT_THAT(warnings_of("/d/val", ""), is_warning("val", "train"));
  EXPECT_THAT(warnings_of("/d", "train"), is_warning("train", "val"));
  EXPECT_THAT(warnings_of("/d", "val", "class_names: ['a', 'b', 'c']"),
              Not(Contains(HasSubstr("beside it"))));
  files.Write("/d/val/c/none.txt", "");
  EXPECT_THAT(warnings_of("/d", "train"), Not(Contains(HasSubstr("beside"))));
  // Other names are splits if they share a class.
  EXPECT_THAT(warnings_of("/d", "other"), IsEmpty());
  files.Write("/d/fold/z/1.bmp", TinyBmp());
  files.Write("/d/fold/y/1.bmp", TinyBmp());
  EXPECT_THAT(warnings_of("/d", "other"),
              Contains(HasSubstr("'y' is only in 'fold'")));
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
      {"1.bmp,1\n1.bmp\n", "line 2: 1 columns, and line 1 has 2"},
      {"1.bmp,1,2\n", "line 1: 3 columns and no header"},
      {"path,label\n\n1.bmp,1,2\n", "line 3: 3 columns, and line 1 has 2"},
      {"1.bmp,\"x\n", "line 1: a quote does not end"},
      {"path,label\n,1\n", "line 2: the path is empty"},
      {std::string(70'000, 'x'), "line 1: more than 65536 bytes"},
      {"path,label\n", "holds only a header"},
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
  EXPECT_THAT(Message(ReadCsv(files, "file,a\n1.bmp,x\n",
                              {{"label_column", "file"}, {"path_column", "0"}})
                          .status()),
              HasSubstr("the same column"));
  // By their number, too.
  auto all = ReadCsv(files, "7,1.bmp,x\n8,1.bmp,y\n",
                     {{"path_column", "1"}, {"label_column", "0"}});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(LabelsOf(*all), ElementsAre(7, 8));
  EXPECT_THAT(NotesOf(*all), ElementsAre("left out: column '2'"));
  EXPECT_THAT(ReadCsv(files, "1.bmp,x\n", {{"label_column", "2"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no column 2 for label_column: there are 2")));
  // The other one of two.
  all = ReadCsv(files, "y,img\n3,1.bmp\n", {{"path_column", "img"}});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(LabelsOf(*all), ElementsAre(3));
}

TEST(ImageCsvReaderTest, AHeaderIsNoSample) {
  MemoryFileSystem files;
  std::string rows;
  for (int i = 0; i < 12; ++i) {
    files.Write(absl::StrCat("/d/", i, ".bmp"), TinyBmp());
    absl::StrAppend(&rows, i, ".bmp,", i, "\n");
  }
  const char* const headers[] = {
      "id_code,diagnosis",  "img.name,img.label", "\"image id\",\"the, y\"",
      "\xEF\xBB\xBFId,y\r", " Path ,label",       "img,x"};
  for (const std::string header : headers) {
    for (const char* const policy : {"FAIL", "SKIP"}) {
      files.Write("/d/list.csv", header + "\n" + rows);
      const auto all =
          ReadAll(With(SpecOf("image_csv", "/d/list.csv"),
                       absl::StrCat("bad_samples: BAD_SAMPLE_POLICY_", policy)),
                  files, kWhole);
      ASSERT_TRUE(all.ok()) << header << all.status();
      EXPECT_THAT(LabelsOf(*all),
                  ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))
          << header;
      EXPECT_THAT(all->info.class_names, IsEmpty());
    }
  }
  // Of classes.
  const auto all = ReadCsv(files, "id,species\n1.bmp,dog\n2.bmp,cat\n");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->info.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(NotesOf(*all),
              ElementsAre("line 1 is the header: 'id', 'species'"));
}

TEST(ImageCsvReaderTest, ASampleIsNoHeader) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  files.Write("/d/a", TinyBmp());
  auto all = ReadCsv(files, "a,5\n1.bmp,3\n");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(LabelsOf(*all), ElementsAre(5, 3));
  // What it is, is unclear.
  for (const char* const text : {"0,1\n1.bmp,3\n", "b,dog\na,cat\n"}) {
    EXPECT_THAT(ReadCsv(files, text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("line 1: no file '"),
                               HasSubstr("name its columns by the options "
                                         "path_column and label_column"),
                               Not(HasSubstr("skip")))));
  }
  // A sample, whose file is missing.
  EXPECT_THAT(ReadCsv(files, "0.bmp,1\n1.bmp,3\n"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("/d/0.bmp: no such file, as line 1"),
                             Not(HasSubstr("skip")))));
  // Paths are in the other column.
  EXPECT_THAT(ReadCsv(files, ",path\n0,1.bmp\n"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("paths are in column '', labels in column "
                                 "'path': the options path_column")));
}

TEST(ImageCsvReaderTest, OfOneColumnThereAreNoLabels) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  for (const char* const text : {"1.bmp\n", "id_code\n1.bmp\n"}) {
    const auto all = ReadCsv(files, text);
    ASSERT_TRUE(all.ok()) << all.status();
    EXPECT_EQ(all->info.num_samples, 1);
    EXPECT_EQ(all->info.fields.size(), 1u);
    EXPECT_THAT(NotesOf(*all), Contains("there is no column of labels"));
  }
  EXPECT_THAT(ReadCsv(files, "1.bmp\n", {{"label_kind", "class"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has no column of labels")));
}

TEST(ImageCsvReaderTest, ColumnsThatAreLeftOutAreTold) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  auto all = ReadCsv(files, "path,fold,x y\n1.bmp,3,0\n");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(NotesOf(*all), ElementsAre("left out: column 'x y'"));
  all = ReadCsv(files, "path,width,label\n1.bmp,3,0\n");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(NotesOf(*all),
              ElementsAre("! left out: column 'label'; labels are those of the "
                          "second column, 'width': option label_column names "
                          "another"));
}

std::string LinesOf(const std::vector<std::string>& labels) {
  std::string text = "path,label\n";
  for (const std::string& label : labels) {
    absl::StrAppend(&text, "1.bmp,", label, "\n");
  }
  return text;
}

TEST(ImageCsvReaderTest, NumbersAreTheValuesOfTheFile) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  const auto read = [&](const std::vector<std::string>& labels,
                        std::map<std::string, std::string> options = {}) {
    auto all = ReadCsv(files, LinesOf(labels), std::move(options));
    EXPECT_TRUE(all.ok()) << all.status();
    EXPECT_THAT(all->info.class_names, IsEmpty());
    return *std::move(all);
  };
  EXPECT_THAT(
      LabelsOf(
          read({"10", "-1", "+5", " 7 ", "\"2\"", "-9223372036854775808"})),
      ElementsAre(10, -1, 5, 7, 2, std::numeric_limits<int64_t>::min()));
  AllSamples all = read({"00", "01", "10"});
  EXPECT_THAT(LabelsOf(all), ElementsAre(0, 1, 10));
  EXPECT_THAT(NotesOf(all), ElementsAre(HasSubstr("without their leading "
                                                  "zeros, as '00' in line 2")));
  all = read({"23.5", "7.25", "101.0", "1e3", "-.5", "4"});
  EXPECT_EQ(all.info.fields[1].dtype, Dtype::kFloat32);
  EXPECT_THAT(LabelsOf<float>(all),
              ElementsAre(23.5f, 7.25f, 101.f, 1000.f, -.5f, 4.f));
  EXPECT_THAT(NotesOf(all), ElementsAre(HasSubstr("float32, as '23.5' in line "
                                                  "2 is no integer")));
  EXPECT_THAT(LabelsOf<float>(read({"1.0", "2.0"})), ElementsAre(1.f, 2.f));
  EXPECT_THAT(LabelsOf(read({"1.0", "2"}, {{"label_kind", "integer"}})),
              ElementsAre(1, 2));
  EXPECT_THAT(LabelsOf<float>(read({"1", "2"}, {{"label_kind", "float"}})),
              ElementsAre(1.f, 2.f));
  EXPECT_THAT(NotesOf(read({"1700000001.5", "1700000002.5"})),
              ElementsAre(HasSubstr("! labels are float32, of 7 digits, which "
                                    "makes '1700000001.5' and '1700000002.5' "
                                    "equal")));
}

TEST(ImageCsvReaderTest, AnOddLabelIsRefusedAndMovesNoOther) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  const auto error_of = [&](const std::vector<std::string>& labels,
                            std::map<std::string, std::string> options = {}) {
    const absl::Status status =
        ReadCsv(files, LinesOf(labels), std::move(options)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(Message(status), Not(HasSubstr("skip")));
    return Message(status);
  };
  EXPECT_THAT(error_of({"0", "1", ""}),
              HasSubstr("list.csv: line 4: label '' is empty: fill it"));
  EXPECT_THAT(error_of({"cat", "", "dog"}), HasSubstr("line 3: label ''"));
  for (const char* const word : {"unknown", "nan", "NA", "?", "1_000", "7%",
                                 "inf", "0x10", "--1", "1.2.3"}) {
    EXPECT_THAT(error_of({"0", word, "10"}),
                AllOf(HasSubstr(absl::StrCat("line 3: label '", word,
                                             "' is no number")),
                      HasSubstr("label_kind=class")));
  }
  EXPECT_THAT(error_of({"23.5", "7.25", "high"}),
              HasSubstr("line 4: label 'high' is no number"));
  EXPECT_THAT(error_of({"cat", "7", "dog"}),
              HasSubstr("line 3: label '7' is a number, and most of the others "
                        "are text"));
  EXPECT_THAT(error_of({"0", "1", "3.0"}),
              AllOf(HasSubstr("line 4: label '3.0' has a decimal point"),
                    HasSubstr("label_kind=integer")));
  EXPECT_THAT(error_of({"1.0", "3", "2.0"}),
              HasSubstr("line 3: label '3' is an integer"));
  EXPECT_THAT(error_of({"1", "9223372036854775808"}),
              HasSubstr("line 3: label '9223372036854775808' does not fit into "
                        "int64"));
  for (const char* const large : {"1e300", "-1e400"}) {
    EXPECT_THAT(error_of({"1.5", large}), HasSubstr("does not fit into "
                                                    "float32"));
  }
  EXPECT_THAT(error_of({"1", "2.5"}, {{"label_kind", "integer"}}),
              HasSubstr("line 3: label '2.5' is no integer"));
  EXPECT_THAT(error_of({"1", "x"}, {{"label_kind", "float"}}),
              HasSubstr("line 3: label 'x' is no number"));
  EXPECT_THAT(error_of({"1"}, {{"label_kind", "text"}}),
              HasSubstr("option label_kind is 'text', expected auto, class"));
}

TEST(ImageCsvReaderTest, TextIsClasses) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  auto all = ReadCsv(files, LinesOf({"dog", "cat", "dog"}));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->info.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(LabelsOf(*all), ElementsAre(1, 0, 1));
  all = ReadCsv(files, LinesOf({"5", "x", "10"}), {{"label_kind", "class"}});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->info.class_names, ElementsAre("10", "5", "x"));
  EXPECT_THAT(LabelsOf(*all), ElementsAre(1, 2, 0));
}

TEST(ImageCsvReaderTest, GivenClassesHaveTheirOrder) {
  MemoryFileSystem files;
  files.Write("/d/1.bmp", TinyBmp());
  files.Write("/d/list.csv", LinesOf({"dog", "cat", "7", "dog"}));
  const auto read = [&](const std::string& more) {
    return ReadAll(With(SpecOf("image_csv", "/d/list.csv"), more), files,
                   kWhole);
  };
  EXPECT_THAT(read("class_names: ['fox', 'dog', 'cat']"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("list.csv: line 4: class '7' is not"),
                             HasSubstr("ignore_other_classes"))));
  const auto all =
      read("class_names: ['fox', 'dog', 'cat'] ignore_other_classes: true");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(LabelsOf(*all), ElementsAre(1, 2, 1));
  EXPECT_THAT(NotesOf(*all),
              ElementsAre("left out: 1 sample of classes that were not given: "
                          "'7'",
                          "no sample of class 'fox'"));
  EXPECT_THAT(
      read("class_names: 'a' options { key: 'label_kind' value: 'float' }"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("option label_kind is float")));
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
