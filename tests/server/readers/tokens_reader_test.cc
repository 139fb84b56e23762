#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/server/readers/read_all.h"
#include "tests/server/readers/reader_conformance.h"
#include "tests/testing/dataset_specs.h"

namespace datasetd::testing {

INSTANTIATE_TEST_SUITE_P(Tokens, ReaderConformanceTest,
                         ::testing::Values("tokens_shards", "tokens_npy"));

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using TokensOptions = std::map<std::string, std::string>;

std::string TokensError(
    const TokensOptions& options, const std::string& path,
    const std::map<std::string, std::string>& contents,
    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  MemoryFileSystem files;
  for (const auto& [name, content] : contents) files.Write(name, content);
  const absl::Status status =
      ReadAll(SpecOf("tokens", path, "", options), files, 2).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(TokensReaderTest, OptionsAreChecked) {
  const auto error = [](const TokensOptions& options) {
    return TokensError(options, "/t.bin", {{"/t.bin", "1234"}});
  };
  EXPECT_THAT(error({{"dtype", "uint64"}}), HasSubstr("one of uint8"));
  EXPECT_THAT(error({{"shape", "0"}}), HasSubstr("option shape"));
  EXPECT_THAT(error({{"name", "a b"}}), HasSubstr("option name"));
  EXPECT_THAT(error({{"header_bytes", "-1"}}), HasSubstr("header_bytes"));
  EXPECT_THAT(error({{"header_bytes", "4"}}), HasSubstr("no tokens after"));
  EXPECT_THAT(error({{"label", "first"}}), HasSubstr("label"));
}

TEST(TokensReaderTest, EachFileOfAPatternIsChecked) {
  EXPECT_THAT(
      TokensError({}, "/{0,1}.bin", {{"/0.bin", "1234"}, {"/1.bin", "123"}},
                  absl::StatusCode::kDataLoss),
      AllOf(HasSubstr("/1.bin: 3 bytes"), HasSubstr("uint16")));
  EXPECT_THAT(TokensError({}, "/{0,1}.bin", {{"/0.bin", "1234"}},
                          absl::StatusCode::kNotFound),
              HasSubstr("1.bin"));
  EXPECT_THAT(TokensError({}, "/{0.bin,1.npy}",
                          {{"/0.bin", "1234"}, {"/1.npy", "1234"}}),
              HasSubstr("/1.npy: a pattern is of .npy files, or of others"));
  EXPECT_THAT(TokensError({{"dtype", "int32"}}, "/0.npy", {{"/0.npy", "1234"}}),
              HasSubstr("the header of a .npy file has dtype and shape"));
}

}  // namespace
}  // namespace datasetd::testing
