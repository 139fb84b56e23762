#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats/formats.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Mnist, ReaderConformanceTest,
                         ::testing::Values("mnist_train", "mnist_test",
                                           "mnist_gzip", "mnist_gzip_members",
                                           "mnist_gzip_zeros", "mnist_dotted",
                                           "mnist_odd"));

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kImages[] = "/m/train-images-idx3-ubyte";
constexpr char kLabels[] = "/m/train-labels-idx1-ubyte";

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string Images(uint32_t count, uint32_t height, uint32_t width,
                   size_t real_bytes) {
  return BigEndian(0x803) + BigEndian(count) + BigEndian(height) +
         BigEndian(width) + std::string(real_bytes, 'p');
}

std::string Labels(uint32_t count, size_t real_bytes) {
  return BigEndian(0x801) + BigEndian(count) + std::string(real_bytes, '\1');
}

absl::Status StatusOf(const std::string& images, const std::string& labels) {
  MemoryFileSystem files;
  files.Write(kImages, images);
  files.Write(kLabels, labels);
  return ReadAll(SpecOf("mnist", "/m"), files, 2).status();
}

TEST(MnistReaderTest, ReadsASmallSet) {
  EXPECT_TRUE(StatusOf(Images(3, 2, 5, 30), Labels(3, 3)).ok());
}

TEST(MnistReaderTest, WrongMagicIsNamedWithWhatWasExpected) {
  EXPECT_THAT(
      StatusOf(Labels(3, 3), Labels(3, 3)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(kImages), HasSubstr("offset 0"),
                     HasSubstr("0x00000801"), HasSubstr("0x00000803"))));
}

TEST(MnistReaderTest, HugeDeclaredSizesAreCheckedAgainstTheFile) {
  absl::Status status =
      StatusOf(Images(0xffffffff, 16384, 16384, 30), Labels(3, 3));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                               AllOf(HasSubstr("46 bytes"),
                                     HasSubstr("1152921504338411536"))));
  status = StatusOf(Images(3, 16385, 1, 30), Labels(3, 3));
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("offset 8"), HasSubstr("16385"))));
  status = StatusOf(Images(3, 2, 0, 30), Labels(3, 3));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("offset 12")));
}

TEST(MnistReaderTest, ZeroSamplesAreInvalid) {
  EXPECT_THAT(
      StatusOf(Images(0, 2, 5, 0), Labels(0, 0)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("zero samples")));
}

TEST(MnistReaderTest, ImagesAndLabelsMustAgree) {
  const absl::Status status = StatusOf(Images(3, 2, 5, 30), Labels(4, 4));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "/m/train-images-idx3-ubyte declares 3 samples, but "
            "/m/train-labels-idx1-ubyte declares 4");
}

TEST(MnistReaderTest, MissingLabelsAreNotFound) {
  MemoryFileSystem files;
  files.Write(kImages, Images(3, 2, 5, 30));
  EXPECT_THAT(ReadAll(SpecOf("mnist", "/m"), files, 2),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("train-labels-idx1-ubyte")));
}

TEST(MnistReaderTest, AGzipBombIsRefusedBeforeItIsRead) {
  // 20 bytes of gzip that declare 2^32 - 1 images could not hold them: told by
  // the size alone, after the first 16 decompressed bytes.
  const GeneratedCase generated = LoadGeneratedCase("mnist_gzip_zeros");
  MemoryFileSystem files = CopyToMemory(generated);
  const std::string& path = generated.files.front();
  // A stored block, so that the header can be written by hand.
  const std::string header = Images(0xffffffff, 28, 28, 0);
  std::string gzip("\x1f\x8b\x08\0\0\0\0\0\0\x03\0\x10\0\xef\xff", 15);
  files.Write(path, gzip + header);
  EXPECT_THAT(
      ReadAll(generated.spec, files, 2),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr(path), HasSubstr("31 bytes of gzip cannot"))));
}

TEST(MnistReaderTest, ADamagedChecksumIsFoundBeforeTheFirstSample) {
  const GeneratedCase generated = LoadGeneratedCase("mnist_gzip");
  MemoryFileSystem files = CopyToMemory(generated);
  const std::string& path = generated.files.front();
  std::string content = files.contents().at(path);
  content[content.size() - 8] ^= 1;  // of the CRC
  files.Write(path, content);
  EXPECT_THAT(
      OpenReader(generated.spec, {files}),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr(path), HasSubstr("incorrect data check"))));
}

}  // namespace
}  // namespace datasetd::testing
