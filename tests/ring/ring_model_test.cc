// Every schedule of the ring's two ends in small configurations, and the proof
// that each check can fail: a mutation plants one mistake, and must be found.

#include "tests/ring/ring_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>

#include "tests/testing/long_form.h"

namespace datasetd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::TestWithParam;
using ::testing::ValuesIn;

ExploreResult ExploreRing(const RingModelOptions& options) {
  return Explorer::Explore(
      [&options] { return std::make_unique<RingModel>(options); },
      {.max_depth = 2000});
}

struct Scenario {
  const char* name;
  RingModelOptions options;
  // Of the short form; 0: as many as in `options`.
  uint32_t short_batches = 0;
  uint32_t short_before_seek = 0;
};

std::ostream& operator<<(std::ostream& out, const Scenario& scenario) {
  return out << scenario.name;
}

const Scenario kScenarios[] = {
    {"OneSlot", {.num_slots = 1, .num_batches = 4}, 3},
    {"TwoSlots", {.num_slots = 2, .num_batches = 4}, 3},
    {"HoldsOneBatch", {.num_slots = 3, .num_batches = 5, .num_held = 1}, 4},
    {"KeepsTheFirstBatch",
     {.num_slots = 3,
      .num_batches = 5,
      .num_held = 1,
      .releases_youngest = true},
     4},
    {"GpuReleasesLate", {.num_slots = 2, .num_batches = 3, .has_gpu = true}, 2},
    {"GpuReleasesLateOutOfOrder",
     {.num_slots = 3,
      .num_batches = 4,
      .num_held = 1,
      .releases_youngest = true,
      .has_gpu = true},
     3},
    {"OneSlotOnGpu", {.num_slots = 1, .num_batches = 4, .has_gpu = true}, 3},
    {"GathersFreeSlots",
     {.num_slots = 2, .num_batches = 4, .gathers = true},
     3},
    {"GathersWhileOneIsHeld",
     {.num_slots = 2, .num_batches = 4, .num_held = 1, .gathers = true}},
    {"GathersOnGpu",
     {.num_slots = 2, .num_batches = 3, .has_gpu = true, .gathers = true},
     2},
    {"TwoThreadsRelease",
     {.num_slots = 2, .num_batches = 2, .has_releaser = true}},
    {"TwoThreadsReleaseOneSlot",
     {.num_slots = 1, .num_batches = 4, .has_releaser = true},
     2},
    {"TwoThreadsReleaseOneSlotOnGpu",
     {.num_slots = 1, .num_batches = 4, .has_gpu = true, .has_releaser = true}},
    {"Seek", {.num_slots = 2, .num_batches = 1, .num_seeks = 1}, 0, 1},
    {"SeekBetweenBatches",
     {.num_slots = 1, .num_batches = 3, .num_seeks = 1},
     2},
    {"SeekDropsStaleWork",
     {.num_slots = 2,
      .num_batches = 1,
      .num_seeks = 1,
      .drops_stale_work = true},
     0,
     1},
    {"SeekOnGpu",
     {.num_slots = 1, .num_batches = 2, .num_seeks = 1, .has_gpu = true},
     1},
    {"TwoSeeks", {.num_slots = 1, .num_batches = 2, .num_seeks = 2}, 1},
    {"TwoSeeksDropStaleWork",
     {.num_slots = 1,
      .num_batches = 1,
      .num_seeks = 2,
      .drops_stale_work = true},
     0,
     1},
    {"SeekOutOfAnEmptyEpoch",
     {.num_slots = 2,
      .num_batches = 2,
      .num_before_seek = 0,
      .num_seeks = 1,
      .seeks_first = true}},
    {"WorkFails", {.num_slots = 2, .num_batches = 3, .may_fail = true}, 2},
    {"ClosesWhileTheClientWaits",
     {.num_slots = 2,
      .num_batches = 3,
      .num_before_seek = 1,
      .may_close = true}},
    {"ClosesAtAnyMoment",
     {.num_slots = 2, .num_batches = 2, .may_close = true},
     1},
};

RingModelOptions OptionsOf(const Scenario& scenario) {
  RingModelOptions options = scenario.options;
  if (IsFull()) return options;
  if (scenario.short_batches > 0) {
    options.num_batches = scenario.short_batches;
  }
  if (scenario.short_before_seek > 0) {
    options.num_before_seek = scenario.short_before_seek;
  }
  return options;
}

class RingModelTest : public TestWithParam<Scenario> {};

TEST_P(RingModelTest, HoldsOnEverySchedule) {
  const ExploreResult result = ExploreRing(OptionsOf(GetParam()));
  EXPECT_TRUE(result.ok()) << result.violation << "\n" << result.schedule;
  EXPECT_GT(result.num_ends, 0u);
  std::cout << GetParam().name << ": " << result.Statistics() << "\n";
}

INSTANTIATE_TEST_SUITE_P(Scenarios, RingModelTest, ValuesIn(kScenarios),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

struct Mistake {
  const char* name;
  Mutation mutation;
  const char* scenario;   // which holds without the mutation
  const char* violation;  // what is found
};

std::ostream& operator<<(std::ostream& out, const Mistake& mistake) {
  return out << mistake.name;
}

constexpr char kLostWakeUp[] = "deadlock: nothing wakes client";
constexpr char kFilledInUse[] = "a slot is filled while somebody may use it";

// One slot is the sharpest: with more, the next batch's wake-up makes good for
// one that was lost.
const Mistake kMistakes[] = {
    {"IdleAfterRescan", Mutation::kIdleAfterRescan, "TwoSlots", kLostWakeUp},
    {"NoRescan", Mutation::kNoRescan, "TwoSlots", kLostWakeUp},
    {"SleepsWhileRequested", Mutation::kSleepsWhileRequested, "OneSlotOnGpu",
     kLostWakeUp},
    {"SleepsWhileWorking", Mutation::kSleepsWhileWorking, "TwoSlots",
     kLostWakeUp},
    {"FreesOnRequest", Mutation::kFreesOnRequest, "GpuReleasesLate",
     kFilledInUse},
    {"FreesOnAnyDone", Mutation::kFreesOnAnyDone, "TwoSlots", kFilledInUse},
    {"PublishesAtStart", Mutation::kPublishesAtStart, "TwoSlots",
     "published too early"},
    {"PublishesFailed", Mutation::kPublishesFailed, "WorkFails",
     "failed work was published"},
    {"PublishesOutOfOrder", Mutation::kPublishesOutOfOrder, "TwoSlots",
     "wrong position"},
    {"SequenceAtStart", Mutation::kSequenceAtStart, "SeekDropsStaleWork",
     "nothing wakes client"},
    {"NewGenerationForOldWork", Mutation::kNewGenerationForOldWork, "Seek",
     "wrong position"},
    // The old generation is skipped for ever: all run, nobody arrives.
    {"IgnoresSeek", Mutation::kIgnoresSeek, "SeekBetweenBatches",
     "longer than max_depth"},
    {"DescriptorAfterPublish", Mutation::kDescriptorAfterPublish, "TwoSlots",
     "the descriptor is of another sequence"},
    {"WaitingReadFirst", Mutation::kWaitingReadFirst, "OneSlot", kLostWakeUp},
    {"NoWakeIncrement", Mutation::kNoWakeIncrement, "TwoSlots", kLostWakeUp},
    {"CloseWithoutWake", Mutation::kCloseWithoutWake,
     "ClosesWhileTheClientWaits", kLostWakeUp},
    {"CloseBeforeState", Mutation::kCloseBeforeState,
     "ClosesWhileTheClientWaits", kLostWakeUp},
    {"FailureWithoutWake", Mutation::kCloseWithoutWake, "WorkFails",
     kLostWakeUp},
    {"NoClosedCheck", Mutation::kNoClosedCheck, "ClosesWhileTheClientWaits",
     kLostWakeUp},
    {"TornSeekRead", Mutation::kTornSeekRead, "TwoSeeks", "torn seek"},
    {"NoEventOnRelease", Mutation::kNoEventOnRelease, "TwoSlots", kLostWakeUp},
    {"NoEventOnSeek", Mutation::kNoEventOnSeek, "SeekOutOfAnEmptyEpoch",
     kLostWakeUp},
    {"IdleReadFirst", Mutation::kIdleReadFirst, "OneSlotOnGpu", kLostWakeUp},
    {"NoEventOnWait", Mutation::kNoEventOnWait, "GathersWhileOneIsHeld",
     kLostWakeUp},
    {"IdleReadBeforeWaiting", Mutation::kIdleReadBeforeWaiting,
     "GathersWhileOneIsHeld", kLostWakeUp},
    {"IgnoresWaiting", Mutation::kIgnoresWaiting, "GathersWhileOneIsHeld",
     kLostWakeUp},
    {"NoWaitingFlag", Mutation::kNoWaitingFlag, "OneSlot", kLostWakeUp},
    {"WordAfterPoll", Mutation::kWordAfterPoll, "TwoSlots", kLostWakeUp},
    {"ReleasesInUse", Mutation::kReleasesInUse, "GpuReleasesLate",
     kFilledInUse},
    {"UsesStale", Mutation::kUsesStale, "Seek", "wrong position"},
    {"PlainRequest", Mutation::kPlainRequest, "TwoThreadsReleaseOneSlotOnGpu",
     kLostWakeUp},
};

class RingMutationTest : public TestWithParam<Mistake> {};

TEST_P(RingMutationTest, IsFound) {
  const Mistake& mistake = GetParam();
  const auto* const scenario = std::find_if(
      std::begin(kScenarios), std::end(kScenarios), [&](const Scenario& s) {
        return s.name == std::string_view(mistake.scenario);
      });
  ASSERT_NE(scenario, std::end(kScenarios));
  RingModelOptions options = OptionsOf(*scenario);
  options.mutation = mistake.mutation;
  const ExploreResult result = ExploreRing(options);
  EXPECT_THAT(result.violation, HasSubstr(mistake.violation));
  EXPECT_THAT(result.schedule, HasSubstr("producer: start"));
  std::cout << mistake.name << ": " << result.Statistics() << "\n";
}

INSTANTIATE_TEST_SUITE_P(Mistakes, RingMutationTest, ValuesIn(kMistakes),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace datasetd::testing
