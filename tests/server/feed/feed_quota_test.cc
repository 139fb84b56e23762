#include "server/feed/feed_quota.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FeedQuotaTest, OneUserHasALimitAndAllHaveOne) {
  FeedQuota quota(3, 2);
  auto first = quota.Take(1000);
  const auto second = quota.Take(1000);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(quota.Take(1000),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("uid 1000 has 2"),
                             HasSubstr("user_limits.max_feeds"))));
  const auto other = quota.Take(1001);
  ASSERT_THAT(other, IsOk());
  EXPECT_THAT(quota.Take(1002), StatusIs(absl::StatusCode::kResourceExhausted,
                                         AllOf(HasSubstr("there are 3"),
                                               HasSubstr("'max_feeds'"))));
  first = FeedQuota::Place();
  EXPECT_THAT(quota.Take(1002), IsOk());
}

TEST(FeedQuotaTest, WithoutALimitOfUsersOneMayHaveAll) {
  FeedQuota quota(3, 0);
  std::vector<FeedQuota::Place> places;
  for (int i = 0; i < 3; ++i) {
    auto place = quota.Take(1000);
    ASSERT_THAT(place, IsOk());
    places.push_back(*std::move(place));
  }
  EXPECT_THAT(quota.Take(1000), StatusIs(absl::StatusCode::kResourceExhausted,
                                         HasSubstr("'max_feeds'")));
}

TEST(FeedQuotaTest, APlaceThatMovedIsGivenBackOnce) {
  FeedQuota quota(1, 1);
  FeedQuota::Place place;
  {
    auto taken = quota.Take(1000);
    ASSERT_THAT(taken, IsOk());
    place = *std::move(taken);
  }
  FeedQuota::Place moved(std::move(place));
  EXPECT_THAT(quota.Take(1000), StatusIs(absl::StatusCode::kResourceExhausted));
  moved = FeedQuota::Place();
  EXPECT_THAT(quota.Take(1000), IsOk());
}

TEST(FeedQuotaTest, ManyThreadsNeverHaveMoreThanTheLimit) {
  FeedQuota quota(2, 0);
  std::atomic<int> num_held = 0;
  std::atomic<int> most_held = 0;
  std::vector<std::thread> threads;
  for (uint32_t uid = 0; uid < 4; ++uid) {
    threads.emplace_back([&, uid] {
      for (int i = 0; i < 1000; ++i) {
        const auto place = quota.Take(uid);
        if (!place.ok()) continue;
        const int held = ++num_held;
        int most = most_held.load();
        while (most < held && !most_held.compare_exchange_weak(most, held)) {
        }
        --num_held;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most_held.load(), 2);
  EXPECT_GE(most_held.load(), 1);
  // All of them came back.
  const auto first = quota.Take(1);
  const auto second = quota.Take(2);
  EXPECT_THAT(first, IsOk());
  EXPECT_THAT(second, IsOk());
}

}  // namespace
}  // namespace datasetd
