#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/formats.h"
#include "server/readers/small_sets/pickle_data.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(CifarPython, ReaderConformanceTest,
                         ::testing::Values("cifar10_python_train",
                                           "cifar10_python_test",
                                           "cifar10_python_protocol4",
                                           "cifar100_python"));

namespace {

using ::testing::HasSubstr;

absl::StatusOr<PickleData> Parse(const std::string& content) {
  MemoryFileSystem files;
  files.Write("/p", content);
  const auto file = files.Open("/p");
  return ReadPickle(**file);
}

std::string ErrorOf(
    const std::string& content,
    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = Parse(content).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(PickleDataTest, WhatWouldRunIsNamedAndNotRun) {
  // os.system("true"), as GLOBAL and REDUCE: data, and no dict of CIFAR.
  const std::string call =
      "\x80\x02"
      "cposix\nsystem\nU\x04true\x85R.";
  const auto data = Parse(call);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->at(data->root).kind, PickleValue::Kind::kObject);
  MemoryFileSystem files;
  files.Write("/c/test_batch", call);
  const absl::Status status =
      OpenReader({"cifar10_python", "/c", "test", {}}, files).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected a dict"));
  // INST, OBJ, NEWOBJ, EXT1, PERSID: not for plain data.
  for (const std::string opcode :
       {"iposix\nsystem\n", "o", "\x81", "\x82\x01", "P1\n", "Q"}) {
    EXPECT_THAT(ErrorOf("\x80\x02" + opcode + "."),
                HasSubstr("offset 2: opcode 0x"));
  }
}

TEST(PickleDataTest, BrokenStacksAreErrors) {
  const std::string begin = "\x80\x02";
  EXPECT_THAT(ErrorOf("hello"), HasSubstr("expected a pickle"));
  EXPECT_THAT(ErrorOf(std::string("\x80\5N.", 4)), HasSubstr("protocol 5"));
  for (const char* body :
       {".", "t.", "e.", "u.", "\x85.", "\x87.", "R.", "a.", "s.", "b.", "NN.",
        "Na.", "N(e.", "](u.", "}(Nu.", "}Na.", "NNb.", "h\1.", "q\1."}) {
    EXPECT_FALSE(ErrorOf(begin + body).empty()) << body;
  }
  EXPECT_THAT(ErrorOf(begin + "U\xffx.", absl::StatusCode::kDataLoss),
              HasSubstr("255 bytes, found 2"));
  EXPECT_THAT(ErrorOf(begin + "N", absl::StatusCode::kDataLoss),
              HasSubstr("ends early, at offset 3"));
  EXPECT_THAT(ErrorOf(begin + "N.N", absl::StatusCode::kDataLoss),
              HasSubstr("goes on at offset 4"));
}

TEST(PickleDataTest, ValuesAndReferencesAreBounded) {
  const std::string begin = "\x80\x02";
  EXPECT_THAT(ErrorOf(begin + std::string((1 << 20) + 1, 'N')),
              HasSubstr("more than 1048576 values"));
  EXPECT_FALSE(ErrorOf(begin + std::string((1 << 20) + 2, '(')).empty());
  // A list of a thousand references, appended a thousand times and more.
  std::string bomb = begin + "Nq\1";
  for (int i = 0; i < 3000; ++i) {
    bomb += "](";
    for (int j = 0; j < 1000; ++j) bomb += "h\1";
    bomb += "e";
  }
  EXPECT_THAT(ErrorOf(bomb), HasSubstr("too many"));
}

TEST(CifarPythonReaderTest, TheBinaryVersionIsNotThisFormat) {
  MemoryFileSystem files;
  files.Write("/c/test_batch.bin", std::string(3073, '\0'));
  EXPECT_EQ(
      OpenReader({"cifar10_python", "/c", "test", {}}, files).status().code(),
      absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace datasetd::testing
