#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/archives/crc32c.h"
#include "server/readers/formats.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Tfrecord, ReaderConformanceTest,
                         ::testing::Values("tfrecord_shards",
                                           "tfrecord_features", "tfrecord_gzip",
                                           "tfrecord_zlib"));

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& features) {
  const GeneratedCase generated = LoadGeneratedCase("tfrecord_features");
  const MemoryFileSystem files = CopyToMemory(generated);
  SourceSpec spec = generated.spec;
  spec.options = {{"features", features}};
  const absl::Status status = ReadAll(spec, files, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(TfrecordReaderTest, FeaturesAreCheckedAgainstTheFirstExample) {
  EXPECT_THAT(ErrorOf("label"), AllOf(HasSubstr("'label', expected NAME="),
                                      HasSubstr("vec: 5 float")));
  EXPECT_THAT(ErrorOf("x:int64"), HasSubstr("feature 'x' is missing"));
  EXPECT_THAT(ErrorOf("vec:int64[5]"), HasSubstr("'vec' is no int64 list"));
  EXPECT_THAT(ErrorOf("codes:float32[2]"), HasSubstr("is no float list"));
  EXPECT_THAT(ErrorOf("codes:int64"), HasSubstr("16 bytes in the first"));
  EXPECT_THAT(ErrorOf("vec:image"), HasSubstr("not one string of bytes"));
  EXPECT_THAT(ErrorOf("vec:colour"), HasSubstr("dtype 'colour'"));
  EXPECT_THAT(ErrorOf("vec:float[5"), HasSubstr("expected a kind"));
  EXPECT_THAT(ErrorOf("1=vec:float[5]"), HasSubstr("'1' cannot name a field"));
  EXPECT_THAT(ErrorOf("vec:float[5],vec:float[5]"),
              HasSubstr("of different names"));
  EXPECT_THAT(ErrorOf(" , "), HasSubstr("0 fields"));
}

void AppendCrc(const std::string& of, std::string& to) {
  const uint32_t crc =
      MaskedCrc32c({reinterpret_cast<const uint8_t*>(of.data()), of.size()});
  for (int i = 0; i < 4; ++i) to += static_cast<char>(crc >> (8 * i));
}

TEST(TfrecordReaderTest, WhatIsNoTfrecordIsNamed) {
  MemoryFileSystem files;
  const auto error_of = [&](const std::string& content, absl::StatusCode code) {
    files.Write("/t", content);
    const absl::Status status =
        ReadAll({"tfrecord", "/t", "", {}}, files, 2).status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error_of("\x1f\x8b gzipped data", absl::StatusCode::kDataLoss),
              HasSubstr("/t: damaged gzip data"));
  // Nothing, compressed.
  const std::string nothing("\x1f\x8b\x08\0\0\0\0\0\0\3\3\0\0\0\0\0\0\0\0\0",
                            20);
  EXPECT_THAT(error_of(nothing, absl::StatusCode::kInvalidArgument),
              HasSubstr("/t: zero samples"));
  EXPECT_THAT(error_of("something else here", absl::StatusCode::kDataLoss),
              HasSubstr("is this a file of TFRecords?"));
  // A record whose length begins as gzip does is one.
  std::string gzip_like("\x1f\x8b\0\0\0\0\0\0", 8);
  AppendCrc(gzip_like, gzip_like);
  EXPECT_THAT(error_of(gzip_like, absl::StatusCode::kDataLoss),
              HasSubstr("a record of 35615 bytes, found 0"));
  // A record of 2^62 bytes, whose length has a right CRC.
  std::string header("\0\0\0\0\0\0\0\x40", 8);
  AppendCrc(header, header);
  EXPECT_THAT(error_of(header + "data", absl::StatusCode::kDataLoss),
              HasSubstr("a record of 4611686018427387904 bytes"));
}

TEST(TfrecordReaderTest, WhatAShardInflatesToHasALimit) {
  GeneratedCase generated = LoadGeneratedCase("tfrecord_gzip");
  const MemoryFileSystem files = CopyToMemory(generated);
  generated.spec.options["max_inflated_bytes"] = "100";
  const absl::Status status = OpenReader(generated.spec, files).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(generated.spec.path + ": its "),
                    HasSubstr("option max_inflated_bytes")));
}

}  // namespace
}  // namespace datasetd::testing
