#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats/formats.h"
#include "server/readers/images/encoded_field.h"
#include "tests/server/readers/deflate.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/server/readers/tar_bytes.h"
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
using ::testing::Not;

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
              AllOf(HasSubstr("all.tar: field 'a': the sample has no .cls"),
                    HasSubstr("none of the first ")));
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

// Others would be converted, to other classes.
TEST(WebdatasetReaderTest, AMaskIsAPngOfOneChannelOrAPalette) {
  const auto make = [](const std::string& name, char bits, char colour) {
    const std::string bytes =
        absl::StrCat("\x89PNG\r\n\x1a\n", std::string("\0\0\0\rIHDR", 8),
                     std::string("\0\0\0\2\0\0\0\2", 8),
                     std::string{bits, colour, 0, 0, 0}, std::string(4, '\0'));
    return EncodedField::Make(
               name, EncodedField::Kind::kImage,
               {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
               ImageOptions())
        .status();
  };
  const auto is_no_mask = StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("a mask is a PNG with one"));
  EXPECT_THAT(make("mask", 8, 3), Not(is_no_mask));  // a palette
  EXPECT_THAT(make("mask", 8, 2), is_no_mask);       // RGB
  EXPECT_THAT(make("mask", 16, 0), is_no_mask);
  EXPECT_THAT(make("mask", 1, 0), Not(is_no_mask));
  EXPECT_THAT(make("mask", 8, 0), Not(is_no_mask));
  EXPECT_THAT(make("image", 8, 3), Not(is_no_mask));
}

TEST(WebdatasetReaderTest, ASplitIsAPattern) {
  EXPECT_EQ(ReadWith({}, "/none-{0..3}.tar").code(),
            absl::StatusCode::kNotFound);
  EXPECT_THAT(ReadWith({}, "/x{"), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("the pattern '/x{'")));
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

// A BMP of 64 x 32 pixels, which deflate cannot make smaller.
std::string Noise(std::mt19937& random) {
  std::string file(
      "BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x40\0\0\0\x20\0\0\0"
      "\1\0\x18\0",
      30);
  file.resize(54);
  for (int i = 0; i < 64 * 32 * 3; ++i) file += static_cast<char>(random());
  return file;
}

TEST(WebdatasetReaderTest, ACompressedShardIsInflatedOnceByAThread) {
  // The fields are the image and the label, the members the other way round.
  constexpr int kNumSamples = 100;
  std::mt19937 random(3);
  std::string archive;
  for (int i = 0; i < kNumSamples; ++i) {
    archive += Member(absl::StrCat(i, ".cls"), absl::StrCat(i));
    archive += Member(absl::StrCat(i, ".bmp"), Noise(random));
  }
  archive += kTarEnd;
  MemoryFileSystem files;
  files.Write("/s.tgz", Deflate(archive, kGzip));
  for (const char* fields : {"", "image:bmp,label:cls,same:bmp"}) {
    v1::DatasetSpec spec = SpecOf("webdataset", "/s.tgz");
    if (*fields != '\0') SetOption(spec, "fields", fields);
    const auto reader = OpenReader(spec, {files});
    ASSERT_THAT(reader, IsOk());
    ASSERT_EQ((*reader)->info().num_samples, kNumSamples);
    ASSERT_EQ((*reader)->info().fields[0].name, "image");
    const int64_t before = files.num_read_bytes();
    RawSample raw;
    for (int i = 0; i < kNumSamples; ++i) {
      ASSERT_THAT((*reader)->Fetch(i, raw), IsOk());
      EXPECT_EQ(std::string(raw.parts[1].begin(), raw.parts[1].end()),
                absl::StrCat(i));
      EXPECT_EQ(raw.parts.back(), raw.parts[*fields == '\0' ? 1 : 0]);
    }
    EXPECT_LE(files.num_read_bytes() - before, files.total_bytes()) << fields;
  }
}

absl::StatusOr<std::unique_ptr<Reader>> OpenArchive(
    MemoryFileSystem& files, const std::string& archive,
    const std::string& fields = "") {
  files.Write("/s.tar", archive);
  v1::DatasetSpec spec = SpecOf("webdataset", "/s.tar");
  if (!fields.empty()) SetOption(spec, "fields", fields);
  return OpenReader(spec, {files});
}

TEST(WebdatasetReaderTest, TheFirstGoodSampleGivesTheFields) {
  std::mt19937 random(3);
  const std::string good =
      Member("2.bmp", Noise(random)) + Member("2.cls", "7") + kTarEnd;
  for (const std::string& bad :
       {Member("1.bmp", "damaged") + Member("1.cls", "1"),
        Member("1.bmp", Noise(random)) + Member("1.cls", "one"),
        Member("1.bmp", Noise(random)) + Member("1.txt", "one")}) {
    MemoryFileSystem files;
    const auto reader = OpenArchive(files, bad + good, "image:bmp,label:cls");
    ASSERT_THAT(reader, IsOk());
    const SourceInfo& info = (*reader)->info();
    EXPECT_EQ(info.num_samples, 2);
    ASSERT_EQ(info.fields.size(), 2u);
    EXPECT_EQ(info.fields[0].shape, (std::vector<int64_t>{32, 64, 3}));
    EXPECT_EQ(info.fields[1].dtype, Dtype::kInt64);
    RawSample raw;
    SampleProbe probe;
    EXPECT_THAT((*reader)->Fetch(1, raw), IsOk());
    EXPECT_THAT((*reader)->Probe(1, raw, probe), IsOk());
    EXPECT_EQ(files.num_open_files(), 1);
  }
}

absl::Status ArchiveStatus(const std::string& members,
                           const std::string& fields = "") {
  MemoryFileSystem files;
  return OpenArchive(files, members + kTarEnd, fields).status();
}

std::string Picture() {
  static const std::string* const noise = [] {
    std::mt19937 random(3);
    return new std::string(Noise(random));
  }();
  return *noise;
}

TEST(WebdatasetReaderTest, WhatIsLeftOutIsTold) {
  MemoryFileSystem files;
  auto reader = OpenArchive(
      files, Member("README", "") + Member("1.bmp", Picture()) +
                 Member("1.txt", "a caption") + Member("1.json", "{}") +
                 Member("2.bmp", Picture()) + Member("2.txt", "b") + kTarEnd);
  ASSERT_THAT(reader, IsOk());
  // Labels may be in the text.
  EXPECT_EQ((*reader)->info().notes,
            (std::vector<LoadNote>{
                {"left out: 1 .json member, 2 .txt members", true},
                {"left out: 1 member without an ending, as 'README'", false}}));
  reader =
      OpenArchive(files, Member("1.bmp", Picture()) + Member("1.cls", "1") +
                             Member("1.txt", "a") + kTarEnd);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->info().notes,
            (std::vector<LoadNote>{{"left out: 1 .txt member", false}}));
}

TEST(WebdatasetReaderTest, AFieldThatTheFirstSampleLacksIsRefused) {
  const std::string archive = Member("1.bmp", Picture()) +
                              Member("2.bmp", Picture()) + Member("2.cls", "7");
  EXPECT_THAT(
      ArchiveStatus(archive),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("sample '2' has .cls, and the first sample, "
                               "'1', has no field 'label'"),
                     HasSubstr("fields=image:jpg;jpeg;png;bmp or "
                               "fields=image:jpg;jpeg;png;bmp,label:cls"))));
  // The first one is a bad sample.
  MemoryFileSystem files;
  files.Write("/s.tar", archive + kTarEnd);
  const auto reader = OpenReader(With(SpecOf("webdataset", "/s.tar"),
                                      "bad_samples: BAD_SAMPLE_POLICY_SKIP"),
                                 {files});
  ASSERT_THAT(reader, IsOk());
  ASSERT_EQ((*reader)->info().fields.size(), 2u);
  EXPECT_EQ((*reader)->info().fields[1].name, "label");
  RawSample raw;
  EXPECT_THAT((*reader)->Fetch(0, raw),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("field 'label': the sample has no .cls")));
  EXPECT_THAT((*reader)->Fetch(1, raw), IsOk());
}

// An image that turns up later comes before the numbers.
TEST(WebdatasetReaderTest, FieldsOfLaterSamplesKeepTheOrder) {
  MemoryFileSystem files;
  files.Write("/s.tar", Member("1.cls", "7") + Member("2.a.bmp", Picture()) +
                            Member("2.cls", "8") + Member("2.id", "9") +
                            kTarEnd);
  const auto reader = OpenReader(With(SpecOf("webdataset", "/s.tar"),
                                      "bad_samples: BAD_SAMPLE_POLICY_SKIP"),
                                 {files});
  ASSERT_THAT(reader, IsOk());
  std::vector<std::string> names;
  for (const FieldSpec& field : (*reader)->info().fields) {
    names.push_back(field.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "label", "id"}));
  const auto fields = ReadSample(**reader, 1);
  ASSERT_THAT(fields, IsOk());
  EXPECT_EQ((*fields)[1][0], 8);
  EXPECT_EQ((*fields)[2][0], 9);
}

TEST(WebdatasetReaderTest, TwoMembersOfOneFieldAreRefused) {
  const std::string archive =
      Member("1.bmp", Picture()) + Member("1.png", "a mask");
  EXPECT_THAT(ArchiveStatus(archive),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sample '1' has .bmp and .png, which are both "
                                 "field 'image': name two fields by the option "
                                 "fields=image:bmp,other:png")));
  EXPECT_THAT(ArchiveStatus(archive, "image:bmp"), IsOk());
  // Of several endings the first one, whatever comes first in the archive.
  MemoryFileSystem files;
  const auto reader = OpenArchive(
      files, Member("1.cls", "1") + Member("1.id", "2") + kTarEnd, "a:id;cls");
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ(ReadSample(**reader, 0).value()[0][0], 2);
}

TEST(WebdatasetReaderTest, DotsInNamesAreExplained) {
  const auto is_explained = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr(what),
                          HasSubstr("key ends at the first dot of the name: "
                                    "replace other dots")));
  };
  const std::string archive =
      Member("a/22.05.bmp", Picture()) + Member("a/22.10.bmp", Picture());
  EXPECT_THAT(ArchiveStatus(archive),
              is_explained("sample 'a/22' has .05.bmp"));
  EXPECT_THAT(ArchiveStatus(archive, "image:bmp"),
              is_explained("the sample has no .bmp; sample 'a/22' has .05.bmp, "
                           ".10.bmp"));
  EXPECT_THAT(ArchiveStatus(Member("a.txt", "") + Member("a.v1.gif", "")),
              is_explained("sample 'a' has no field that is read: .txt, "
                           ".v1.gif"));
  EXPECT_THAT(
      ArchiveStatus(Member("b.bmp", Picture()) + Member("c.v2.bmp", Picture())),
      is_explained("sample 'c' has .v2.bmp"));
  // Other characters become _.
  MemoryFileSystem files;
  const auto reader =
      OpenArchive(files, Member("1.side-view.bmp", Picture()) + kTarEnd);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->info().fields[0].name, "side_view");
}

TEST(WebdatasetReaderTest, MembersThatDoNotFollowEachOtherAreRefused) {
  const std::string images =
      Member("a.bmp", Picture()) + Member("b.bmp", Picture());
  const std::string labels = Member("a.cls", "1") + Member("b.cls", "2");
  const auto is_refused =
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("sample 'a' is in several pieces"),
                     HasSubstr("tar --sort=name"), Not(HasSubstr("skip"))));
  EXPECT_THAT(ArchiveStatus(images + labels), is_refused);
  EXPECT_THAT(ArchiveStatus(images + labels, "image:bmp,label:cls"),
              is_refused);
  MemoryFileSystem files;
  files.Write("/s.tar", images + labels + kTarEnd);
  EXPECT_THAT(OpenReader(With(SpecOf("webdataset", "/s.tar"),
                              "bad_samples: BAD_SAMPLE_POLICY_SKIP"),
                         {files}),
              is_refused);
}

TEST(WebdatasetReaderTest, AThousandBadSamplesAreAnErrorOfTheFirst) {
  std::string archive;
  for (int i = 0; i < 1000; ++i) {
    archive += Member(absl::StrCat(i, ".cls"), absl::StrCat("no ", i));
  }
  MemoryFileSystem files;
  EXPECT_THAT(
      OpenArchive(files, archive + kTarEnd),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("/s.tar: offset 512: 'no 0', expected a whole number; "
                         "none of the first 1000 samples")));
  // The archive is not read on behind them. A sample is complete when the next
  // one's name comes.
  EXPECT_THAT(OpenArchive(files, archive + Member("x.cls", "1") + "no tar"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("none of the first 1000 samples")));
}

TEST(WebdatasetReaderTest, TheSizeOfASparseSampleIsTheLargestNumber) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const std::string begin =
      Member("1.cls", "7") + TarHeader("2.cls", Base256(kHuge));
  MemoryFileSystem files;
  files.WriteSparse("/s.tar", begin,
                    static_cast<int64_t>(begin.size()) + kHuge + 1024);
  v1::DatasetSpec spec = SpecOf("webdataset", "/s.tar");
  SetOption(spec, "fields", "a:cls,b:cls,c:cls");
  const auto reader = OpenReader(spec, {files});
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->info().num_samples, 2);
  EXPECT_EQ((*reader)->Locate(0).size_bytes, 3);
  EXPECT_EQ((*reader)->Locate(1).size_bytes,
            std::numeric_limits<int64_t>::max());
  RawSample raw;
  EXPECT_THAT((*reader)->Fetch(1, raw),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected at most 268435456")));
}

TEST(WebdatasetReaderTest, WhatAShardInflatesToHasALimit) {
  GeneratedCase generated = LoadGeneratedCase("webdataset_gzip");
  const MemoryFileSystem files = CopyToMemory(generated);
  SetOption(generated.spec, "max_inflated_bytes", "100");
  EXPECT_THAT(OpenReader(generated.spec, {files}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(generated.spec.path() + ": its "),
                             HasSubstr("option max_inflated_bytes"))));
}

}  // namespace
}  // namespace datasetd::testing
