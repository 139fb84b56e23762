#include "base/worker.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;

TEST(WorkerTest, RunsTasksInOrderOnItsThread) {
  std::vector<int> runs;
  std::thread::id thread;
  Worker worker("test");
  for (int i = 0; i < 3; ++i) {
    worker.Run([&, i] {
      runs.push_back(i);
      thread = std::this_thread::get_id();
    });
  }
  EXPECT_TRUE(worker.Await(absl::Seconds(30)));
  EXPECT_THAT(runs, ElementsAre(0, 1, 2));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(WorkerTest, GivingWaitsForNothingAndAwaitHasAnEnd) {
  absl::Notification gate;
  absl::Notification is_done;
  Worker worker("test");
  worker.Run([&] { gate.WaitForNotification(); });
  // A task may give more.
  worker.Run([&] { worker.Run([&] { is_done.Notify(); }); });
  EXPECT_FALSE(worker.Await(absl::Milliseconds(1)));
  gate.Notify();
  EXPECT_TRUE(worker.Await(absl::Seconds(30)));
  EXPECT_TRUE(is_done.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

TEST(WorkerTest, WhatATaskHoldsGoesBeforeAwaitReturns) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> weak = held;
  Worker worker("test");
  worker.Run([held = std::move(held)] {});
  EXPECT_TRUE(worker.Await(absl::Seconds(30)));
  EXPECT_TRUE(weak.expired());
}

TEST(WorkerTest, ItsEndIsTheEndOfAllThatItHas) {
  std::vector<int> runs;
  {
    Worker worker("test");
    for (int i = 0; i < 100; ++i) worker.Run([&, i] { runs.push_back(i); });
  }
  EXPECT_EQ(runs.size(), 100u);
}

}  // namespace
}  // namespace datasetd
