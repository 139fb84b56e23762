#include "base/parallel_for.h"

#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/require.h"
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

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

// Runs in a process of its own, which has memory for a few stacks of threads.
void RunWithFewThreads(rlim_t stacks_bytes) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t used = static_cast<rlim_t>(pages) * 4096;
  const rlimit limit = {used + stacks_bytes, used + stacks_bytes};
  Require(setrlimit(RLIMIT_AS, &limit) == 0, "a limit can be set");
  std::atomic<int> num_bodies = 0;
  std::atomic<int64_t> num_done = 0;
  {
    ParallelFor rounds({.num_threads = 64}, [&] {
      ++num_bodies;
      return [&](int64_t begin, int64_t end) { num_done += end - begin; };
    });
    if (rounds.status().ok()) {
      rounds.Start(1000);
      rounds.Finish();
    } else {
      std::fprintf(stderr, "%s\n", rounds.status().ToString().c_str());
    }
  }
  std::fprintf(stderr, "%s, %d rounds\n",
               num_bodies == 0   ? "no thread"
               : num_bodies < 64 ? "some threads"
                                 : "all threads",
               static_cast<int>(num_done));
  std::_Exit(0);
}

TEST(ParallelForDeathTest, GoesOnWithTheThreadsThatThereAre) {
  EXPECT_EXIT(RunWithFewThreads(40 << 20), ::testing::ExitedWithCode(0),
              "some threads, 1000 rounds");
}

TEST(ParallelForDeathTest, SaysWhenThereIsNoThread) {
  EXPECT_EXIT(RunWithFewThreads(1 << 20), ::testing::ExitedWithCode(0),
              "RESOURCE_EXHAUSTED: threads: .*TasksMax(.|\n)*"
              "no thread, 0 rounds");
}

#endif

}  // namespace
}  // namespace datasetd
