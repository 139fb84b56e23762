#include "base/event_thread.h"

#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;

TEST(EventThreadTest, EventsRunInTheirOrderOnOneThread) {
  std::vector<int> runs;
  EventThread thread("test");
  for (int i = 0; i < 3; ++i) {
    thread.Post([&, i] { runs.push_back(i); });
  }
  EXPECT_NE(thread.Call([] { return std::this_thread::get_id(); }),
            std::this_thread::get_id());
  EXPECT_THAT(runs, ElementsAre(0, 1, 2));
}

TEST(EventThreadTest, ACallReturnsWhatTheEventReturns) {
  EventThread thread("test");
  EXPECT_EQ(*thread.Call([] { return std::make_unique<int>(3); }), 3);
}

TEST(EventThreadTest, TheEndRunsWhatIsLeftButNotWhatIsForLater) {
  std::vector<int> runs;
  {
    EventThread thread("test");
    absl::Notification is_late;
    thread.PostAfter(absl::Hours(1), [&] { runs.push_back(9); });
    thread.PostAfter(absl::Milliseconds(20), [&] { is_late.Notify(); });
    thread.PostAfter(absl::Milliseconds(10), [&] { runs.push_back(2); });
    thread.Post([&] { runs.push_back(1); });
    is_late.WaitForNotification();
    thread.Post([&] { thread.Post([&] { runs.push_back(3); }); });
  }
  EXPECT_THAT(runs, ElementsAre(1, 2, 3));
}

TEST(EventThreadTest, TheLongestEventIsKnown) {
  EventThread thread("test");
  thread.Call([] {
    const absl::Duration end = MonotonicNow() + absl::Milliseconds(20);
    while (MonotonicNow() < end) {
    }
    return true;
  });
  thread.Call([] { return true; });
  EXPECT_GT(thread.longest_event(), absl::ZeroDuration());
  EXPECT_LT(thread.longest_event(), absl::Seconds(10));
}

}  // namespace
}  // namespace datasetd
