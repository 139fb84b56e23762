#include "server/attach/user_threads.h"

#include <atomic>
#include <latch>  // which ThreadSanitizer sees, unlike Abseil's
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

TEST(UserThreadsTest, TasksOfAUserRunInTheirOrder) {
  std::vector<int> order;
  std::latch last(1);
  UserThreads threads("test", absl::InfiniteDuration());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(threads.Run(7, [&order, i] { order.push_back(i); }).ok());
  }
  ASSERT_TRUE(threads.Run(7, [&last] { last.count_down(); }).ok());
  last.wait();
  ASSERT_EQ(order.size(), 100);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(UserThreadsTest, AUserWhoseTaskDoesNotEndWaitsAlone) {
  std::latch go_on(1);
  std::latch other(1);
  UserThreads threads("test", absl::InfiniteDuration());
  ASSERT_TRUE(threads.Run(7, [&go_on] { go_on.wait(); }).ok());
  ASSERT_TRUE(threads.Run(7, [] {}).ok());
  ASSERT_TRUE(threads.Run(8, [&other] { other.count_down(); }).ok());
  other.wait();
  EXPECT_EQ(threads.num_tasks(7), 2);
  EXPECT_EQ(threads.num_tasks(9), 0);
  go_on.count_down();
}

TEST(UserThreadsTest, TheEndWaitsForWhatRunsAndDestroysTheRest) {
  std::atomic<bool> has_ended = false;
  const auto held = std::make_shared<int>(1);
  {
    UserThreads threads("test", absl::InfiniteDuration());
    ASSERT_TRUE(threads.Run(7, [&] { has_ended.store(true); }).ok());
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(threads.Run(7, [held] {}).ok());
    }
  }
  EXPECT_TRUE(has_ended.load());
  EXPECT_EQ(held.use_count(), 1);
}

TEST(UserThreadsTest, TheEndWaitsNoLongerThanItIsTold) {
  const auto go_on = std::make_shared<std::latch>(1);
  const auto is_over = std::make_shared<std::latch>(1);
  {
    UserThreads threads("test", absl::Milliseconds(1));
    ASSERT_TRUE(threads
                    .Run(7,
                         [go_on, is_over] {
                           go_on->wait();
                           is_over->count_down();
                         })
                    .ok());
  }
  go_on->count_down();
  is_over->wait();
}

}  // namespace
}  // namespace datasetd
