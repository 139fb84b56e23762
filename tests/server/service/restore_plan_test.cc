#include "server/service/restore_plan.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/load/load_request.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr uint32_t kDaemon = 500;

v1::Manifest::Entry Entry(const std::string& name, uint32_t uid,
                          uint32_t num_interrupted = 0, bool is_suspect = false,
                          uint32_t shared_end = 0) {
  v1::Manifest::Entry entry;
  entry.mutable_spec()->set_name(name);
  entry.mutable_spec()->set_format("npy");
  entry.mutable_spec()->set_path("/data/" + name);
  entry.set_owner_uid(uid);
  entry.set_content_hash(std::string(64, 'a'));
  entry.set_num_interrupted(num_interrupted);
  entry.set_is_suspect(is_suspect);
  entry.set_shared_end(shared_end);
  return entry;
}

TEST(RestorePlanTest, WhatWasNotInterruptedIsLoadedAgain) {
  const std::vector<RestoredDataset> datasets =
      PlanRestore({Entry("a", 1000), Entry("b", kDaemon)}, kDaemon);
  ASSERT_THAT(datasets, SizeIs(2));
  EXPECT_EQ(datasets[0].spec.path(), "/data/a");
  EXPECT_EQ(datasets[0].owner.uid, 1000u);
  EXPECT_EQ(datasets[0].owner.session_id, Caller::kEarlierSession);
  EXPECT_FALSE(datasets[0].owner.is_privileged);
  EXPECT_FALSE(datasets[0].is_suspect);
  EXPECT_THAT(datasets[0].refusal, IsOk());
  EXPECT_EQ(datasets[0].content_hash, std::string(64, 'a'));
  EXPECT_TRUE(datasets[1].owner.is_privileged);
}

// A power cut is no reason to lose a dataset.
TEST(RestorePlanTest, ASuspectIsLoadedAgainAloneUntilItIsInterruptedOften) {
  const std::vector<RestoredDataset> datasets = PlanRestore(
      {Entry("a", 1000, 0, true), Entry("b", 1001, kMaxInterruptedRestores - 1),
       Entry("c", 1002, kMaxInterruptedRestores)},
      kDaemon);
  ASSERT_THAT(datasets, SizeIs(3));
  EXPECT_TRUE(datasets[0].is_suspect);
  EXPECT_THAT(datasets[0].refusal, IsOk());
  EXPECT_TRUE(datasets[1].is_suspect);
  EXPECT_THAT(datasets[1].refusal, IsOk());
  EXPECT_THAT(datasets[2].refusal,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("3 times in a row"),
                             HasSubstr("load it with the same arguments"))));
}

TEST(RestorePlanTest, AUserWhoseDatasetsInterruptOftenLosesOnlyThose) {
  std::vector<v1::Manifest::Entry> entries;
  for (int i = 0; i < 3; ++i) {
    entries.push_back(Entry(absl::StrCat("bad", i), 1000, 2, true, 1));
  }
  entries.push_back(Entry("suspect", 1000, 0, true, 2));
  entries.push_back(Entry("untried", 1000));
  entries.push_back(Entry("others", 1001, 0, true, 1));
  const std::vector<RestoredDataset> datasets = PlanRestore(entries, kDaemon);
  ASSERT_THAT(datasets, SizeIs(6));
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(datasets[i].refusal,
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("8 times while it restored datasets of uid "
                                   "1000")));
  }
  EXPECT_THAT(datasets[5].refusal, IsOk());
}

// Such as a power cut while a user's datasets were scanned side by side.
TEST(RestorePlanTest, AnEndThatManyDatasetsShareIsOneEndOfTheirUser) {
  std::vector<v1::Manifest::Entry> entries;
  for (uint32_t i = 0; i < kMaxInterruptedRestoresOfUser; ++i) {
    entries.push_back(Entry(absl::StrCat("read", i), 1000, 0, true, 3));
  }
  entries.push_back(Entry("untried", 1000));
  const std::vector<RestoredDataset> datasets = PlanRestore(entries, kDaemon);
  ASSERT_THAT(datasets, SizeIs(entries.size()));
  for (const RestoredDataset& dataset : datasets) {
    EXPECT_THAT(dataset.refusal, IsOk());
    EXPECT_EQ(dataset.is_suspect, dataset.spec.name() != "untried");
  }
}

TEST(RestorePlanTest, ASpecOfAnotherVersionIsFailedWithTheReason) {
  v1::Manifest::Entry entry = Entry("a", 1000);
  entry.mutable_spec()->set_bad_samples(static_cast<v1::BadSamplePolicy>(99));
  entry.mutable_spec()->set_private_(true);
  const std::vector<RestoredDataset> datasets = PlanRestore({entry}, kDaemon);
  ASSERT_THAT(datasets, SizeIs(1));
  // The registry accepts it, so that its owner can unload it.
  EXPECT_THAT(CheckRequest(datasets[0].spec), IsOk());
  EXPECT_EQ(datasets[0].spec.name(), "a");
  EXPECT_TRUE(datasets[0].spec.private_());
  EXPECT_EQ(datasets[0].owner.uid, 1000u);
  EXPECT_THAT(datasets[0].refusal,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("bad_samples"),
                             HasSubstr("to forget it, unload it"))));
}

}  // namespace
}  // namespace datasetd
