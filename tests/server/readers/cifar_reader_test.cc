#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Cifar, ReaderConformanceTest,
                         ::testing::Values("cifar10_train", "cifar10_test",
                                           "cifar10_parent", "cifar10_blocks",
                                           "cifar100_train", "cifar100_test"));

namespace {

using ::testing::HasSubstr;

std::string Record(const std::string& labels) {
  return labels + std::string(3072, '\x7f');
}

absl::Status ReadStatus(const v1::DatasetSpec& spec, const FileSystem& files) {
  return ReadAll(spec, files, 2).status();
}

TEST(CifarReaderTest, LabelOutOfRangeNamesFileRecordAndValue) {
  MemoryFileSystem files;
  files.Write("/c/test_batch.bin", Record("\x09") + Record("\x01") +
                                       Record("\x02") + Record("\x0a"));
  const absl::Status status =
      ReadStatus(SpecOf("cifar10", "/c", "test"), files);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "/c/test_batch.bin: record 3: label is 10, expected 0 to 9");
}

TEST(CifarReaderTest, BothLabelsOfCifar100AreChecked) {
  MemoryFileSystem files;
  files.Write("/c/test.bin", Record("\x13\x63") + Record("\x14\x63"));
  EXPECT_EQ(ReadStatus(SpecOf("cifar100", "/c", "test"), files).message(),
            "/c/test.bin: record 1: coarse_label is 20, expected 0 to 19");
  files.Write("/c/test.bin", Record("\x13\x64"));
  EXPECT_EQ(ReadStatus(SpecOf("cifar100", "/c", "test"), files).message(),
            "/c/test.bin: record 0: label is 100, expected 0 to 99");
}

TEST(CifarReaderTest, AMissingBatchIsNotFound) {
  MemoryFileSystem files;
  for (const char* name : {"1", "2", "3", "5"}) {
    files.Write(absl::StrCat("/c/data_batch_", name, ".bin"), Record("\x01"));
  }
  EXPECT_THAT(
      ReadStatus(SpecOf("cifar10", "/c"), files),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/c/data_batch_4.bin")));
}

TEST(CifarReaderTest, ThePythonVersionIsRecognized) {
  MemoryFileSystem files;
  files.Write("/c/data_batch_1", "\x80\x02");
  EXPECT_THAT(ReadStatus(SpecOf("cifar10", "/c"), files),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Python version")));
}

TEST(CifarReaderTest, ClassNamesMustBeAsManyAsClasses) {
  MemoryFileSystem files;
  files.Write("/c/test_batch.bin", Record("\x01"));
  files.Write("/c/batches.meta.txt", "cat\ndog\n");
  absl::Status status = ReadStatus(SpecOf("cifar10", "/c", "test"), files);
  EXPECT_THAT(
      status,
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("/c/batches.meta.txt: 2 class names, expected 10")));
  files.Write("/c/batches.meta.txt", "cat\ndog\xff\n");
  status = ReadStatus(SpecOf("cifar10", "/c", "test"), files);
  EXPECT_THAT(std::string(status.message()), HasSubstr("line 2"));
  files.Write("/c/batches.meta.txt", std::string(100'000, 'a'));
  status = ReadStatus(SpecOf("cifar10", "/c", "test"), files);
  EXPECT_THAT(std::string(status.message()), HasSubstr("100000 bytes"));
}

}  // namespace
}  // namespace datasetd::testing
