// Samples that are looked at when a source is opened, and the lists of them
// that it keeps, have their memory counted.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/dataset/decode_budget.h"
#include "server/readers/formats.h"
#include "tests/server/readers/generated_data.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kUid = 1000;

class FirstSampleTest : public ::testing::TestWithParam<const char*> {};

TEST_P(FirstSampleTest, IsChargedWhileItIsLookedAt) {
  const GeneratedCase generated = LoadGeneratedCase(GetParam());
  const MemoryFileSystem files = CopyToMemory(generated);
  DecodeBudget budget{DecodeBudget::Limits()};
  const auto reader =
      OpenReader(generated.spec,
                 {.files = files, .account = {.budget = &budget, .uid = kUid}});
  ASSERT_THAT(reader, IsOk());
  EXPECT_GT(budget.peak_bytes(), 0);
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST_P(FirstSampleTest, IsRefusedWhereItIsMoreThanASampleMayTake) {
  const GeneratedCase generated = LoadGeneratedCase(GetParam());
  const MemoryFileSystem files = CopyToMemory(generated);
  DecodeBudget budget({.sample_bytes = 1, .total_bytes = 2});
  EXPECT_THAT(
      OpenReader(generated.spec,
                 {.files = files, .account = {.budget = &budget, .uid = kUid}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("max_sample_memory_mib")));
  EXPECT_EQ(budget.used_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, FirstSampleTest,
                         ::testing::Values("image_folder", "webdataset_gnu",
                                           "join"));

class SampleListTest : public ::testing::TestWithParam<const char*> {};

TEST_P(SampleListTest, IsChargedWhileTheSourceLives) {
  const GeneratedCase generated = LoadGeneratedCase(GetParam());
  const MemoryFileSystem files = CopyToMemory(generated);
  DecodeBudget lists{DecodeBudget::Limits()};
  {
    const auto reader =
        OpenReader(generated.spec,
                   {.files = files, .account = {.uid = kUid, .lists = &lists}});
    ASSERT_THAT(reader, IsOk());
    EXPECT_GT(lists.used_bytes(), 0);
  }
  EXPECT_EQ(lists.used_bytes(), 0);
}

TEST_P(SampleListTest, IsRefusedWhereItIsMoreThanTheUserMayHave) {
  const GeneratedCase generated = LoadGeneratedCase(GetParam());
  const MemoryFileSystem files = CopyToMemory(generated);
  DecodeBudget lists({.sample_bytes = 1, .total_bytes = 2});
  EXPECT_THAT(
      OpenReader(generated.spec,
                 {.files = files, .account = {.uid = kUid, .lists = &lists}}),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("lists of samples of this user's loads")));
  EXPECT_EQ(lists.used_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, SampleListTest,
                         ::testing::Values("webdataset_gnu",
                                           "webdataset_shards"));

}  // namespace
}  // namespace datasetd::testing
