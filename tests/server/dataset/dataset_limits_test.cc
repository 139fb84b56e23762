#include "server/dataset/dataset_limits.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::SetOption;
using ::datasetd::testing::SpecOf;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DatasetLimitsTest, PathsAreShortened) {
  const std::pair<const char*, const char*> paths[] = {
      {"", ""},
      {"/", "/"},
      {"//", "/"},
      {"/.", "/"},
      {"/data", "/data"},
      {"/data/", "/data"},
      {"//data/././/a", "/data/a"},
      {"/data/../a/..", "/data/../a/.."},
      {"/data/.a/..b/...", "/data/.a/..b/..."},
      {"data/./a", "data/a"},
      {"./", "."},
  };
  for (const auto& [path, normal] : paths) {
    EXPECT_EQ(NormalPath(path), normal) << path;
  }
  std::string dots = "/data";
  for (int i = 0; i < 100'000; ++i) dots += "/.";
  EXPECT_EQ(NormalPath(dots + "/a"), "/data/a");
}

TEST(DatasetLimitsTest, EveryTextOfASpecHasALimit) {
  v1::DatasetSpec spec = SpecOf("", std::string(kMaxPathBytes, 'p'));
  spec.set_name("a");
  EXPECT_THAT(CheckSpecTexts(spec), IsOk());
  spec.mutable_path()->push_back('p');
  EXPECT_THAT(CheckSpecTexts(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("path: has 4097 bytes")));
  spec.clear_path();
  spec.set_split(std::string(257, 's'));
  EXPECT_THAT(CheckSpecTexts(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("split")));
  spec.clear_split();
  // 3 bytes are the name, and 13 the key and lengths.
  SetOption(spec, "key", std::string(kMaxSpecTextBytes - 16, 'v'));
  EXPECT_THAT(CheckSpecTexts(spec), IsOk());
  SetOption(spec, "key", std::string(kMaxSpecTextBytes - 15, 'v'));
  EXPECT_THAT(CheckSpecTexts(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("spec: has 65537 bytes"),
                             HasSubstr("at most 65536"))));
  spec.clear_options();
  spec.set_name("../a");
  EXPECT_THAT(CheckSpecTexts(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
}

TEST(DatasetLimitsTest, NamesOfClassesHaveALimitTogether) {
  std::vector<std::string> names;
  for (int i = 0; i < 21'841; ++i) {
    names.push_back(absl::StrCat("n", 10'000'000 + i, ", a long name"));
  }
  EXPECT_THAT(CheckClassNames(names), IsOk());
  names.push_back(std::string(kMaxClassNameBytes, 'x'));
  EXPECT_THAT(
      CheckClassNames(names),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("21842 names")));
}

TEST(DatasetLimitsTest, WhatIsKeptIsCounted) {
  v1::DatasetSpec spec = SpecOf("npy", "/data/a");
  SetOption(spec, "key", std::string(1000, 'v'));
  const uint64_t bytes = DatasetTextBytes(spec, {});
  EXPECT_GE(bytes, spec.ByteSizeLong());
  SetOption(spec, "another", std::string(3000, 'v'));
  EXPECT_GE(DatasetTextBytes(spec, {}), bytes + 3000);
  EXPECT_EQ(DatasetTextBytes(spec, {"cat", "dogs"}),
            DatasetTextBytes(spec, {}) + 2 * sizeof(std::string) + 7);
}

}  // namespace
}  // namespace datasetd
