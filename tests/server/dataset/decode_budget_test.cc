#include "server/dataset/decode_budget.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kUser = 1000;
constexpr uid_t kOther = 1001;

TEST(DecodeBudgetTest, ASampleWaitsForAnotherToGo) {
  DecodeBudget budget({.sample_bytes = 100, .total_bytes = 100});
  std::atomic<bool> has_gone = false;
  std::atomic<bool> has_waited = false;
  std::thread other;
  {
    DecodeBudget::Share share(&budget, kUser);
    ASSERT_THAT(share.Take(60), IsOk());
    EXPECT_TRUE(*share.TryGrowTo(90));
    other = std::thread([&] {
      DecodeBudget::Share second(&budget, kOther);
      ASSERT_THAT(second.Take(11), IsOk());
      has_waited = has_gone.load();
    });
    has_gone = true;
  }
  other.join();
  EXPECT_TRUE(has_waited);
  EXPECT_EQ(budget.peak_bytes(), 90);
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(DecodeBudgetTest, AWaitMayBeCancelled) {
  DecodeBudget budget({.sample_bytes = 100, .total_bytes = 100});
  std::atomic<bool> is_cancelled = false;
  DecodeBudget::Share first(&budget, kUser);
  ASSERT_THAT(first.Take(60), IsOk());
  std::thread large([&] {
    DecodeBudget::Share share(&budget, kOther);
    EXPECT_THAT(share.Take(90, &is_cancelled),
                StatusIs(absl::StatusCode::kCancelled,
                         HasSubstr("waited for host memory")));
  });
  // It waits behind the large one, or comes before it.
  std::thread small([&] {
    DecodeBudget::Share share(&budget, kOther);
    EXPECT_THAT(share.Take(40), IsOk());
  });
  is_cancelled = true;
  large.join();
  small.join();
  EXPECT_EQ(budget.used_bytes(), 60);
  DecodeBudget::Share third(&budget, kOther);
  EXPECT_THAT(third.Take(40, &is_cancelled), IsOk());  // it need not wait
}

TEST(DecodeBudgetTest, ASampleThatIsTooLargeIsRefused) {
  DecodeBudget budget(
      {.sample_bytes = 3 << 20, .total_bytes = int64_t{100} << 20});
  DecodeBudget::Share share(&budget, kUser);
  const auto refusal =
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("3145729 bytes"),
                     HasSubstr("max_sample_memory_mib"), HasSubstr("is 3:")));
  EXPECT_THAT(share.Take((3 << 20) + 1), refusal);
  ASSERT_THAT(share.Take(1 << 20), IsOk());
  EXPECT_THAT(share.TryGrowTo((3 << 20) + 1).status(), refusal);
  EXPECT_EQ(budget.used_bytes(), 1 << 20);
}

TEST(DecodeBudgetTest, WhatDoesNotFitNowIsNotGrownTo) {
  DecodeBudget budget({.sample_bytes = 80, .total_bytes = 100});
  DecodeBudget::Share first(&budget, kUser);
  DecodeBudget::Share second(&budget, kOther);
  ASSERT_THAT(first.Take(50), IsOk());
  ASSERT_THAT(second.Take(20), IsOk());
  EXPECT_FALSE(*second.TryGrowTo(60));
  EXPECT_EQ(budget.used_bytes(), 70);
  first.Release();
  EXPECT_TRUE(*second.TryGrowTo(60));
  EXPECT_EQ(budget.used_bytes(), 60);
}

TEST(DecodeBudgetTest, OneUserLeavesHalfOfItToOthers) {
  DecodeBudget budget({.sample_bytes = 50, .total_bytes = 100});
  DecodeBudget::Share first(&budget, kUser);
  ASSERT_THAT(first.Take(50), IsOk());
  absl::Notification is_waiting;
  std::thread waiting([&] {
    DecodeBudget::Share second(&budget, kUser);
    is_waiting.Notify();
    ASSERT_THAT(second.Take(1), IsOk());
  });
  is_waiting.WaitForNotification();
  {
    // Whether or not that one waits already.
    DecodeBudget::Share other(&budget, kOther);
    ASSERT_THAT(other.Take(50), IsOk());
    EXPECT_EQ(budget.used_bytes(), 100);
  }
  first.Release();
  waiting.join();
}

TEST(DecodeBudgetTest, ThreadsNeverHoldMoreThanTheLimit) {
  constexpr int64_t kLimit = 1000;
  DecodeBudget budget({.sample_bytes = 500, .total_bytes = kLimit});
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&budget, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 300; ++i) {
        DecodeBudget::Share share(&budget, kUser + t % 3);
        const int64_t raw = 1 + static_cast<int64_t>(random() % 200);
        const int64_t all = raw + static_cast<int64_t>(random()) % 300;
        ASSERT_THAT(share.Take(raw), IsOk());
        if (*share.TryGrowTo(all)) continue;
        share.Release();
        ASSERT_THAT(share.Take(all), IsOk());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(budget.peak_bytes(), kLimit);
  EXPECT_GT(budget.peak_bytes(), 0);
  EXPECT_EQ(budget.used_bytes(), 0);
}

}  // namespace
}  // namespace datasetd
