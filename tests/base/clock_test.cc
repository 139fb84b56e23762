#include "base/clock.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace datasetd {
namespace {

TEST(RealClockTest, IsTheSystems) {
  const RealClock clock;
  const absl::Time before = absl::Now();
  const absl::Time now = clock.Now();
  EXPECT_GE(now, before - absl::Minutes(1));
  EXPECT_LE(now, before + absl::Minutes(1));
}

TEST(RealClockTest, MonotonicMovesAndNeverBack) {
  const RealClock clock;
  const absl::Duration start = clock.Monotonic();
  absl::Duration last = start;
  // Ends when the clock has moved.
  while (last == start) {
    const absl::Duration now = clock.Monotonic();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(start, absl::ZeroDuration());
}

TEST(FakeClockTest, StandsStillUntilAdvanced) {
  FakeClock clock;
  const absl::Time now = clock.Now();
  const absl::Duration monotonic = clock.Monotonic();
  EXPECT_EQ(clock.Now(), now);
  clock.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(clock.Now() - now, absl::Milliseconds(1500));
  EXPECT_EQ(clock.Monotonic() - monotonic, absl::Milliseconds(1500));
  clock.SetNow(now - absl::Hours(1));
  EXPECT_EQ(clock.Now(), now - absl::Hours(1));
  EXPECT_EQ(clock.Monotonic() - monotonic, absl::Milliseconds(1500));
}

}  // namespace
}  // namespace datasetd
