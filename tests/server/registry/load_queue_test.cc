#include "server/registry/load_queue.h"

#include <string>

#include "gtest/gtest.h"

namespace datasetd {
namespace {

class LoadQueueTest : public ::testing::Test {
 protected:
  void Add(uint32_t uid, const std::string& name) { queue_.Add(uid, name); }
  // Empty: nobody's turn.
  std::string Take() { return queue_.HasTurn() ? queue_.Take() : ""; }

  LoadQueue<std::string> queue_{/*max_running_per_user=*/2};
};

TEST_F(LoadQueueTest, AUsersLoadsComeInTheirOrder) {
  for (const char* name : {"a", "b", "c"}) Add(7, name);
  EXPECT_EQ(Take(), "a");
  EXPECT_EQ(Take(), "b");
  queue_.Finish(7);
  EXPECT_EQ(Take(), "c");
}

TEST_F(LoadQueueTest, OneUsersLoadsDoNotKeepAnothersWaiting) {
  for (int i = 0; i < 30; ++i) Add(7, "slow");
  EXPECT_EQ(Take(), "slow");
  EXPECT_EQ(Take(), "slow");
  // A thread is free, and is kept for others.
  EXPECT_EQ(Take(), "");
  Add(8, "other");
  EXPECT_EQ(Take(), "other");
  EXPECT_EQ(Take(), "");
  queue_.Finish(7);
  EXPECT_EQ(Take(), "slow");
}

TEST_F(LoadQueueTest, UsersTakeTurns) {
  for (const char* name : {"a1", "a2", "a3"}) Add(7, name);
  for (const char* name : {"b1", "b2"}) Add(8, name);
  Add(9, "c1");
  EXPECT_EQ(Take(), "a1");
  EXPECT_EQ(Take(), "b1");
  EXPECT_EQ(Take(), "c1");
  EXPECT_EQ(Take(), "a2");
  EXPECT_EQ(Take(), "b2");
}

TEST_F(LoadQueueTest, AJobThatWaitsIsRemoved) {
  for (const char* name : {"a", "b", "c", "d"}) Add(7, name);
  EXPECT_EQ(Take(), "a");
  EXPECT_EQ(Take(), "b");
  const auto is_c = [](const std::string& name) { return name == "c"; };
  EXPECT_FALSE(queue_.Remove(8, is_c));
  EXPECT_TRUE(queue_.Remove(7, is_c));
  EXPECT_FALSE(queue_.Remove(7, is_c));
  EXPECT_FALSE(queue_.HasTurn());
  queue_.Finish(7);
  EXPECT_EQ(Take(), "d");
}

TEST_F(LoadQueueTest, AllUsersTogetherHaveSoManyAtATime) {
  LoadQueue<int> queue(/*max_running_per_user=*/2, /*max_running=*/3);
  for (int uid = 1; uid <= 4; ++uid) queue.Add(uid, uid);
  for (int uid = 1; uid <= 3; ++uid) EXPECT_EQ(queue.Take(), uid);
  EXPECT_FALSE(queue.HasTurn());
  queue.Finish(2);
  EXPECT_EQ(queue.Take(), 4);
}

TEST_F(LoadQueueTest, WhatRunsIsFinishedAfterTheRestIsForgotten) {
  for (const char* name : {"a", "b"}) Add(7, name);
  EXPECT_EQ(Take(), "a");
  queue_.Clear();
  EXPECT_FALSE(queue_.HasTurn());
  queue_.Finish(7);
  EXPECT_FALSE(queue_.HasTurn());
}

}  // namespace
}  // namespace datasetd
