#include "server/feed/poll_backoff.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;

TEST(PollBackoffTest, SleepsDoubleUpToTheLongest) {
  PollBackoff backoff;
  std::vector<uint64_t> sleeps;
  for (int i = 0; i < 7; ++i) {
    sleeps.push_back(backoff.Next(PollBackoff::kNever));
  }
  EXPECT_THAT(sleeps, ElementsAre(20'000, 40'000, 80'000, 160'000, 320'000,
                                  500'000, 500'000));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(PollBackoff::kNever), 20'000);
}

// An end that is off its expected time is seen within half of what it is off,
// or in the shortest sleep.
TEST(PollBackoffTest, AnEndIsSeenTheSoonerTheNearerItIsToItsTime) {
  constexpr int64_t kExpected = 10'000'000;
  for (const int64_t off : {0, 1'000, 30'000, 100'000, 400'000, 900'000}) {
    for (const int64_t end : {kExpected - off, kExpected + off}) {
      PollBackoff backoff;
      int64_t now = 0;
      while (now < end) {
        now += static_cast<int64_t>(
            backoff.Next(static_cast<uint64_t>(std::abs(kExpected - now))));
      }
      EXPECT_LE(now - end, std::max<int64_t>(off / 2, 0) + 20'000)
          << end << " of " << kExpected;
    }
  }
}

}  // namespace
}  // namespace datasetd
