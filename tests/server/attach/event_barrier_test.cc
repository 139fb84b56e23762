#include "server/attach/event_barrier.h"

#include <atomic>
#include <thread>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

bool IsHeard(const EventBarrier& barrier, uint64_t number) {
  return barrier.Await(number, absl::ZeroDuration());
}

TEST(EventBarrierTest, NobodyWaitsUntilSomebodyAsks) {
  EventBarrier barrier;
  EXPECT_FALSE(barrier.EndRound(0, 10));
  EXPECT_FALSE(barrier.EndRound(3, 10));
  const uint64_t number = barrier.Ask();
  EXPECT_FALSE(IsHeard(barrier, number));
  EXPECT_TRUE(barrier.EndRound(0, 10));
}

// A round that was under way when somebody asked says nothing: its events may
// have come before.
TEST(EventBarrierTest, ARoundWithoutEventsAfterTheAskIsTheEnd) {
  EventBarrier barrier;
  const uint64_t number = barrier.Ask();
  EXPECT_TRUE(barrier.EndRound(0, 10));
  EXPECT_FALSE(IsHeard(barrier, number));
  EXPECT_TRUE(barrier.EndRound(2, 10));
  EXPECT_FALSE(IsHeard(barrier, number));
  EXPECT_FALSE(barrier.EndRound(0, 10));
  EXPECT_TRUE(IsHeard(barrier, number));
}

TEST(EventBarrierTest, WhereEventsNeverEndItIsAsManyAsThereCouldBe) {
  EventBarrier barrier;
  const uint64_t number = barrier.Ask();
  EXPECT_TRUE(barrier.EndRound(5, 10));
  EXPECT_TRUE(barrier.EndRound(6, 99));
  EXPECT_FALSE(IsHeard(barrier, number));
  EXPECT_FALSE(barrier.EndRound(4, 99));
  EXPECT_TRUE(IsHeard(barrier, number));
}

TEST(EventBarrierTest, ABrokenRoundIsNoEnd) {
  EventBarrier barrier;
  const uint64_t number = barrier.Ask();
  EXPECT_TRUE(barrier.EndRound(0, 10));
  EXPECT_TRUE(barrier.EndRound(-1, 10));
  EXPECT_FALSE(IsHeard(barrier, number));
}

TEST(EventBarrierTest, WhoAsksMeanwhileHasRoundsOfTheirOwn) {
  EventBarrier barrier;
  const uint64_t first = barrier.Ask();
  EXPECT_TRUE(barrier.EndRound(0, 10));
  const uint64_t second = barrier.Ask();
  EXPECT_TRUE(barrier.EndRound(0, 10));
  EXPECT_TRUE(IsHeard(barrier, first));
  EXPECT_FALSE(IsHeard(barrier, second));
  EXPECT_FALSE(barrier.EndRound(0, 10));
  EXPECT_TRUE(IsHeard(barrier, second));
}

TEST(EventBarrierTest, AThreadThatWaitsIsLetGo) {
  EventBarrier barrier;
  std::atomic<bool> is_done = false;
  std::thread loop([&] {
    while (!is_done) barrier.EndRound(0, 10);
  });
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(barrier.Await(barrier.Ask(), absl::Seconds(30)));
  }
  is_done = true;
  loop.join();
}

}  // namespace
}  // namespace datasetd
