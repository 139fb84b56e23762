#include "server/dataset/spec_id.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::MatchesRegex;

DatasetSpec Spec() {
  DatasetSpec spec;
  spec.name = "a";
  spec.format = "raw";
  spec.path = "/data/a";
  spec.split = "train";
  spec.device = "cpu";
  spec.options = {{"shape", "4,4,3"}};
  return spec;
}

SourceInfo Source() {
  SourceInfo source;
  source.files = {
      {.path = "/data/a/0", .size_bytes = 10, .mtime_nanoseconds = 5},
      {.path = "/data/a/1", .size_bytes = 11, .mtime_nanoseconds = 6}};
  return source;
}

TEST(SpecIdTest, WhatIsReadAndHowChangesIt) {
  using Change = void (*)(DatasetSpec&, SourceInfo&);
  const Change changes[] = {
      [](DatasetSpec&, SourceInfo&) {},
      [](DatasetSpec& spec, SourceInfo&) { spec.format = "npy"; },
      [](DatasetSpec& spec, SourceInfo&) { spec.path = "/data/b"; },
      [](DatasetSpec& spec, SourceInfo&) { spec.split = "test"; },
      [](DatasetSpec& spec, SourceInfo&) { spec.device = "cuda:0"; },
      [](DatasetSpec& spec, SourceInfo&) { spec.pretransforms_key = "x"; },
      [](DatasetSpec& spec, SourceInfo&) { spec.options["shape"] = "4,4,1"; },
      [](DatasetSpec& spec, SourceInfo&) { spec.options["header"] = "1"; },
      [](DatasetSpec& spec, SourceInfo&) {
        spec.bad_samples = BadSamplePolicy::kSkip;
      },
      [](DatasetSpec& spec, SourceInfo&) {
        spec.bad_samples = BadSamplePolicy::kSkip;
        spec.max_bad_samples = 3;
      },
      [](DatasetSpec&, SourceInfo& source) { source.files.pop_back(); },
      [](DatasetSpec&, SourceInfo& source) { source.files[0].path = "/0"; },
      [](DatasetSpec&, SourceInfo& source) { source.files[0].size_bytes = 9; },
      [](DatasetSpec&, SourceInfo& source) {
        source.files[1].mtime_nanoseconds = 7;
      }};
  std::set<std::string> ids;
  for (const Change change : changes) {
    DatasetSpec spec = Spec();
    SourceInfo source = Source();
    change(spec, source);
    const std::string id = SpecId(spec, source);
    EXPECT_THAT(id, MatchesRegex("[0-9a-f]{64}"));
    EXPECT_TRUE(ids.insert(id).second) << "change " << ids.size();
  }
}

TEST(SpecIdTest, NameAndLimitsThatDoNotBindLeaveItAlone) {
  const std::string id = SpecId(Spec(), Source());
  DatasetSpec spec = Spec();
  spec.name = "b";
  EXPECT_EQ(SpecId(spec, Source()), id);
  spec.max_bad_samples = 3;  // the policy is to fail
  EXPECT_EQ(SpecId(spec, Source()), id);
}

TEST(SpecIdTest, AnOptionsEndIsNotAnothersBegin) {
  DatasetSpec first = Spec();
  first.options = {{"a", "1\n1:b=1:2"}};
  DatasetSpec second = Spec();
  second.options = {{"a", "1"}, {"b", "2"}};
  EXPECT_NE(SpecId(first, Source()), SpecId(second, Source()));
}

TEST(SpecIdTest, APathsEndIsNotAnothersBegin) {
  DatasetSpec first = Spec();
  first.path = "/data/a\ntrain";
  first.split = "";
  DatasetSpec second = Spec();
  second.path = "/data/a";
  second.split = "train\n";
  EXPECT_NE(SpecId(first, Source()), SpecId(second, Source()));
}

TEST(SpecIdTest, APushIsItsNameContentAndUser) {
  const std::string id = PushedSpecId("a", "00ff", 1000);
  EXPECT_THAT(id, MatchesRegex("[0-9a-f]{64}"));
  EXPECT_EQ(PushedSpecId("a", "00ff", 1000), id);
  EXPECT_NE(PushedSpecId("b", "00ff", 1000), id);
  EXPECT_NE(PushedSpecId("a", "00fe", 1000), id);
  EXPECT_NE(PushedSpecId("a", "00ff", 1001), id);
}

}  // namespace
}  // namespace datasetd
