#include "server/feed/reaper.h"

#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;

// Says in `ends` when and on which thread it ended.
struct Mortal {
  Mortal(int number, std::vector<int>* ends) : number(number), ends(ends) {}
  ~Mortal() {
    ends->push_back(number);
    thread = std::this_thread::get_id();
  }
  const int number;
  std::vector<int>* const ends;
  static std::thread::id thread;
};
std::thread::id Mortal::thread;

TEST(ReaperTest, DestroysInOrderOnItsThread) {
  std::vector<int> ends;
  Reaper reaper;
  for (int i = 0; i < 3; ++i)
    reaper.Destroy(std::make_unique<Mortal>(i, &ends));
  EXPECT_TRUE(reaper.Await(absl::Seconds(30)));
  EXPECT_THAT(ends, ElementsAre(0, 1, 2));
  EXPECT_NE(Mortal::thread, std::this_thread::get_id());
}

TEST(ReaperTest, GivingWaitsForNothingAndAwaitHasAnEnd) {
  absl::Notification gate;
  absl::Notification is_done;
  Reaper reaper;
  reaper.Run([&] { gate.WaitForNotification(); });
  // A task may give more.
  reaper.Run([&] { reaper.Run([&] { is_done.Notify(); }); });
  EXPECT_FALSE(reaper.Await(absl::Milliseconds(1)));
  gate.Notify();
  EXPECT_TRUE(reaper.Await(absl::Seconds(30)));
  EXPECT_TRUE(is_done.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

TEST(ReaperTest, ItsEndIsTheEndOfAllThatItHas) {
  std::vector<int> ends;
  {
    Reaper reaper;
    for (int i = 0; i < 100; ++i) {
      reaper.Destroy(std::make_unique<Mortal>(i, &ends));
    }
  }
  EXPECT_EQ(ends.size(), 100u);
}

}  // namespace
}  // namespace datasetd
