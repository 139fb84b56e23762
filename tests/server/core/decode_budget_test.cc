#include "server/core/decode_budget.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

TEST(DecodeBudgetTest, ASampleWaitsForAnotherToGo) {
  DecodeBudget budget(100);
  std::atomic<bool> has_gone = false;
  std::atomic<bool> has_waited = false;
  std::thread other;
  {
    DecodeBudget::Share share(&budget);
    share.TakeRaw(60);
    share.TakeDecoded(30);
    other = std::thread([&] {
      DecodeBudget::Share second(&budget);
      second.TakeRaw(11);
      has_waited = has_gone.load();
    });
    has_gone = true;
  }
  other.join();
  EXPECT_TRUE(has_waited);
  EXPECT_EQ(budget.peak_bytes(), 90);
}

TEST(DecodeBudgetTest, ALargerSampleThanTheLimitGoesAlone) {
  DecodeBudget budget(100);
  DecodeBudget::Share share(&budget);
  share.TakeRaw(1000);
  share.TakeDecoded(5000);
  EXPECT_EQ(budget.peak_bytes(), 6000);
}

TEST(DecodeBudgetTest, ThreadsNeverHoldMoreThanTheLimitAndOneSample) {
  constexpr int64_t kLimit = 1000;
  constexpr int64_t kLargest = 1500;
  DecodeBudget budget(kLimit);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&budget, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 300; ++i) {
        DecodeBudget::Share share(&budget);
        const int64_t raw = 1 + static_cast<int64_t>(random() % 400);
        share.TakeRaw(raw);
        share.TakeDecoded(static_cast<int64_t>(random()) % (kLargest - raw));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(budget.peak_bytes(), kLimit + kLargest);
  EXPECT_GT(budget.peak_bytes(), 0);
}

}  // namespace
}  // namespace datasetd
