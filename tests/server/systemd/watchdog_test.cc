#include "server/systemd/watchdog.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

class WatchdogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
  }

  FakeClock clock_;
};

TEST_F(WatchdogTest, TheIntervalIsThatOfTheEnvironment) {
  EXPECT_EQ(Watchdog::IntervalFromEnvironment(), absl::InfiniteDuration());
  setenv("WATCHDOG_USEC", "1500000", 1);
  EXPECT_EQ(Watchdog::IntervalFromEnvironment(), absl::Milliseconds(1500));
  setenv("WATCHDOG_PID", absl::StrCat(getpid()).c_str(), 1);
  EXPECT_EQ(Watchdog::IntervalFromEnvironment(), absl::Milliseconds(1500));
  setenv("WATCHDOG_PID", absl::StrCat(getpid() + 1).c_str(), 1);
  EXPECT_EQ(Watchdog::IntervalFromEnvironment(), absl::InfiniteDuration());
}

TEST_F(WatchdogTest, WhatIsNoIntervalIsNone) {
  for (const char* text : {"", "0", "-5", "soon", "1e6"}) {
    setenv("WATCHDOG_USEC", text, 1);
    EXPECT_EQ(Watchdog::IntervalFromEnvironment(), absl::InfiniteDuration())
        << text;
  }
}

TEST_F(WatchdogTest, ChecksThreeTimesInTheInterval) {
  Watchdog watchdog(absl::Seconds(60), &clock_);
  EXPECT_TRUE(watchdog.IsDue());
  ASSERT_THAT(watchdog.Check({}), IsOk());
  EXPECT_FALSE(watchdog.IsDue());
  EXPECT_EQ(watchdog.TimeToNext(), absl::Seconds(20));
  clock_.Advance(absl::Milliseconds(19999));
  EXPECT_FALSE(watchdog.IsDue());
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(watchdog.IsDue());
}

TEST_F(WatchdogTest, WithoutAnIntervalNothingIsEverDue) {
  Watchdog watchdog(absl::InfiniteDuration(), &clock_);
  EXPECT_FALSE(watchdog.IsDue());
  clock_.Advance(absl::Hours(1000));
  EXPECT_EQ(watchdog.TimeToNext(), absl::InfiniteDuration());
}

TEST_F(WatchdogTest, AProducerThatAnswersIsWell) {
  Watchdog watchdog(absl::Seconds(60), &clock_);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_THAT(
        watchdog.Check({{"cpu", {.num_pings = i, .num_pings_answered = i}}}),
        IsOk());
  }
}

TEST_F(WatchdogTest, OneThatDoesNotAnswerIsNamedUntilItDoes) {
  Watchdog watchdog(absl::Seconds(60), &clock_);
  ASSERT_THAT(watchdog.Check({{"cuda:0", {}}, {"cuda:1", {}}}), IsOk());
  const std::map<std::string, ProducerProgress> stuck = {
      {"cuda:0", {.num_pings = 1, .num_pings_answered = 1}},
      {"cuda:1", {.num_pings = 1, .num_pings_answered = 0}}};
  EXPECT_THAT(watchdog.Check(stuck),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("cuda:1 has not answered for 20s")));
  EXPECT_THAT(watchdog.Check(stuck),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(
      watchdog.Check({{"cuda:0", {.num_pings = 3, .num_pings_answered = 3}},
                      {"cuda:1", {.num_pings = 3, .num_pings_answered = 3}}}),
      IsOk());
}

ProducerProgress Running(uint64_t num_ended) {
  return {.num_launches_ended = num_ended, .has_running_launch = true};
}

TEST_F(WatchdogTest, ADeviceThatEndsWhatItIsGivenIsWell) {
  Watchdog watchdog(absl::Seconds(60), &clock_);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_THAT(watchdog.Check({{"cuda:0", Running(i)}}), IsOk());
  }
}

TEST_F(WatchdogTest, ADeviceThatHangsIsNamedThoughItsProducerAnswers) {
  Watchdog watchdog(absl::Seconds(60), &clock_);
  ASSERT_THAT(watchdog.Check({{"cuda:0", Running(7)}}), IsOk());
  EXPECT_THAT(watchdog.Check({{"cuda:0", Running(7)}}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("on cuda:0 has ended for 20s")));
  EXPECT_THAT(watchdog.Check({{"cuda:0", Running(8)}}), IsOk());
}

TEST_F(WatchdogTest, ALongLaunchIsWellAsLongAsItsPiecesEnd) {
  Watchdog watchdog(absl::Seconds(60), &clock_);
  ProducerProgress progress = Running(7);
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(watchdog.Check({{"cpu", progress}}), IsOk());
    ++progress.num_pieces;
  }
  --progress.num_pieces;
  EXPECT_THAT(watchdog.Check({{"cpu", progress}}),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("on cpu has ended for 20s")));
}

TEST_F(WatchdogTest, ADeviceWithoutWorkNeedsToEndNothing) {
  Watchdog watchdog(absl::Seconds(60), &clock_);
  ASSERT_THAT(watchdog.Check({{"cuda:0", Running(7)}}), IsOk());
  const ProducerProgress idle = {.num_launches_ended = 7};
  EXPECT_THAT(watchdog.Check({{"cuda:0", idle}}), IsOk());
  EXPECT_THAT(watchdog.Check({{"cuda:0", idle}}), IsOk());
  EXPECT_THAT(watchdog.Check({{"cuda:0", Running(7)}}), IsOk());
}

}  // namespace
}  // namespace datasetd
