#include "base/parallel_for.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

TEST(ParallelForTest, EveryRoundIsDoneOnce) {
  for (const int num_threads : {1, 3, 8}) {
    std::vector<std::atomic<int>> done(10'000);
    ParallelFor rounds({.num_threads = num_threads, .max_at_once = 32}, [&] {
      return [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++done[static_cast<size_t>(i)];
      };
    });
    for (const int64_t count : {1, 2999, 7000}) rounds.Start(count);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(rounds.Finish());
    for (const std::atomic<int>& number : done) EXPECT_EQ(number, 1);
  }
}

TEST(ParallelForTest, ManyAreTakenInMultiplesOfTheAlignment) {
  std::mutex mutex;
  std::set<int64_t> begins;
  ParallelFor rounds({.num_threads = 2, .max_at_once = 100, .alignment = 32},
                     [&] {
                       return [&](int64_t begin, int64_t end) {
                         EXPECT_LE(end - begin, 100);
                         std::lock_guard lock(mutex);
                         begins.insert(begin);
                       };
                     });
  rounds.Start(100'000);
  rounds.Finish();
  int64_t last = 0;
  for (const int64_t begin : begins) {
    // Only at the end are there few.
    if (begin < 99'000) {
      EXPECT_EQ(begin % 32, 0);
    }
    last = begin;
  }
  EXPECT_GT(last, 99'000);
}

TEST(ParallelForTest, FewRoundsStayTogether) {
  std::mutex mutex;
  std::map<int64_t, int64_t> ends;
  ParallelFor rounds({.num_threads = 3, .min_at_once = 10, .max_at_once = 40},
                     [&] {
                       return [&](int64_t begin, int64_t end) {
                         std::lock_guard lock(mutex);
                         ends[begin] = end;
                       };
                     });
  rounds.Start(1'005);
  rounds.Start(7);
  rounds.Finish();
  rounds.Finish();
  int64_t next = 0;
  for (const auto& [begin, end] : ends) {
    EXPECT_EQ(begin, next);
    EXPECT_LE(end - begin, 40);
    if (end != 1'005 && end != 1'012) {
      EXPECT_GE(end - begin, 10);
    }
    next = end;
  }
  EXPECT_EQ(next, 1'012);
}

TEST(ParallelForTest, AThreadHasABodyOfItsOwn) {
  std::atomic<int> num_bodies = 0;
  {
    ParallelFor rounds({.num_threads = 4}, [&] {
      ++num_bodies;
      return [](int64_t, int64_t) {};
    });
    rounds.Start(1000);
    rounds.Finish();
  }
  EXPECT_EQ(num_bodies, 4);
}

TEST(ParallelForTest, ARangeFinishesWhileTheNextOneGoesOn) {
  absl::Notification may_end;
  ParallelFor rounds({.num_threads = 2}, [&] {
    return [&](int64_t begin, int64_t) {
      if (begin == 10) may_end.WaitForNotification();
    };
  });
  rounds.Start(10);
  rounds.Start(1);
  EXPECT_TRUE(rounds.Finish());
  EXPECT_FALSE(rounds.Finish(absl::ZeroDuration()));
  may_end.Notify();
  EXPECT_TRUE(rounds.Finish());
}

TEST(ParallelForTest, TheEndSkipsWhatHasNotBegun) {
  std::atomic<int64_t> num_done = 0;
  absl::Notification has_begun;
  {
    ParallelFor rounds({.num_threads = 1}, [&] {
      return [&](int64_t, int64_t) {
        if (++num_done == 1) has_begun.Notify();
      };
    });
    rounds.Start(int64_t{1} << 40);
    has_begun.WaitForNotification();
  }
  EXPECT_LT(num_done, int64_t{1} << 40);
}

}  // namespace
}  // namespace datasetd
