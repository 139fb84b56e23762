#include "server/dataset/dataset_limits.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
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
  DatasetSpec spec;
  spec.name = "a";
  spec.path = std::string(kMaxPathBytes, 'p');
  EXPECT_THAT(CheckSpecTexts(spec), IsOk());
  spec.path += "p";
  EXPECT_THAT(CheckSpecTexts(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("path: has 4097 bytes")));
  spec.path.clear();
  spec.split = std::string(257, 's');
  EXPECT_THAT(CheckSpecTexts(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("split")));
  spec.split.clear();
  spec.options["key"] = std::string(kMaxSpecTextBytes, 'v');
  EXPECT_THAT(CheckSpecTexts(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("at most 65536")));
  spec.options.clear();
  spec.wire = std::make_shared<const std::string>(kMaxSpecTextBytes + 1, 'w');
  EXPECT_THAT(CheckSpecTexts(spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("spec: has 65537 bytes")));
  spec.wire = nullptr;
  spec.name = "../a";
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
  DatasetSpec spec;
  spec.wire = std::make_shared<const std::string>(100, 'w');
  EXPECT_EQ(DatasetTextBytes(spec, {}), 200u);
  EXPECT_EQ(DatasetTextBytes(spec, {"cat", "dogs"}),
            200u + 2 * sizeof(std::string) + 7);
}

}  // namespace
}  // namespace datasetd
