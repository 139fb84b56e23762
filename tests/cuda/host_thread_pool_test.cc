#include "cuda/host/host_thread_pool.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/kernels/program/host_checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::SizeIs;

class FunctionJob final : public HostThreadPool::Job {
 public:
  FunctionJob(HostThreadPool* pool, std::function<void()> run,
              HostUser user = {})
      : Job(pool, user), run_(std::move(run)) {}
  void Run() override { run_(); }

 private:
  const std::function<void()> run_;
};

TEST(HostThreadPoolTest, RunsAsOftenAsAsked) {
  HostThreadPool pool(3);
  EXPECT_EQ(pool.num_threads(), 3);
  std::latch all(1000);
  FunctionJob job(&pool, [&] { all.count_down(); });
  for (int i = 0; i < 100; ++i) pool.Schedule(&job, 10);
  pool.Schedule(&job, 0);
  all.wait();
}

TEST(HostThreadPoolTest, OneJobRunsOnSeveralThreadsAtOnce) {
  HostThreadPool pool(3);
  std::latch meeting(3);
  std::latch done(3);
  // Each run waits for the other two.
  FunctionJob job(&pool, [&] {
    meeting.arrive_and_wait();
    done.count_down();
  });
  pool.Schedule(&job, 3);
  done.wait();
}

TEST(HostThreadPoolTest, JobsTakeTurns) {
  HostThreadPool pool(1);
  std::latch may_start(1);
  std::latch done(5);
  std::vector<char> order;
  FunctionJob gate(&pool, [&] { may_start.wait(); });
  FunctionJob a(&pool, [&] {
    order.push_back('a');
    done.count_down();
  });
  FunctionJob b(&pool, [&] {
    order.push_back('b');
    done.count_down();
  });
  pool.Schedule(&gate, 1);
  pool.Schedule(&a, 3);
  pool.Schedule(&b, 2);
  may_start.count_down();
  done.wait();
  ASSERT_THAT(order, SizeIs(5));
  // The order after that depends on how long the runs took.
  EXPECT_EQ(order[0], 'a');
  EXPECT_EQ(order[1], 'b');
}

TEST(HostThreadPoolTest, RunMaySchedule) {
  HostThreadPool pool(2);
  std::atomic<int> left = 100;
  std::latch done(1);
  std::function<void()> next;
  FunctionJob job(&pool, [&] { next(); });
  next = [&] {
    if (--left == 0) {
      done.count_down();
    } else {
      pool.Schedule(&job, 1);
    }
  };
  pool.Schedule(&job, 1);
  done.wait();
  EXPECT_EQ(left, 0);
}

// Works in pieces until told to end, or to leave out the rest.
void WorkUntil(const std::atomic<bool>& is_over) {
  while (!is_over && GoesOn()) {
  }
}

TEST(HostThreadPoolTest, ALongRunLetsAnotherJobIn) {
  HostThreadPool pool(1);
  std::atomic<bool> is_over = false;
  std::latch has_begun(1);
  std::latch has_ended(1);
  FunctionJob heavy(&pool, [&] {
    has_begun.count_down();
    WorkUntil(is_over);
    has_ended.count_down();
  });
  // Ends what it would else wait for.
  FunctionJob light(&pool, [&] { is_over = true; });
  pool.Schedule(&heavy, 1);
  has_begun.wait();
  pool.Schedule(&light, 1);
  has_ended.wait();
}

TEST(HostThreadPoolTest, ManyLongRunsOfOneUserDoNotStopAnother) {
  constexpr int kThreads = 2;
  constexpr int kHeavyJobs = 50;
  HostThreadPool pool(kThreads);
  std::atomic<bool> is_over = false;
  std::latch have_ended(4 * kHeavyJobs);
  std::vector<std::unique_ptr<FunctionJob>> heavy;
  for (int i = 0; i < kHeavyJobs; ++i) {
    heavy.push_back(std::make_unique<FunctionJob>(
        &pool,
        [&] {
          WorkUntil(is_over);
          have_ended.count_down();
        },
        HostUser{.uid = 1}));
    pool.Schedule(heavy.back().get(), 4);
  }
  for (int i = 0; i < 200; ++i) {
    std::latch is_served(1);
    FunctionJob light(&pool, [&] { is_served.count_down(); }, {.uid = 2});
    pool.Schedule(&light, 1);
    is_served.wait();
  }
  // Those that go on, and eight paused ones of the one user.
  EXPECT_LE(pool.num_live_threads(), 2 * kThreads + 8);
  is_over = true;
  have_ended.wait();
}

TEST(HostThreadPoolTest, ThreadsThatEndTogetherAreNotTooMany) {
  HostThreadPool pool(1, std::chrono::milliseconds(1));
  for (int turn = 0; turn < 20; ++turn) {
    std::atomic<bool> is_over = false;
    std::latch have_ended(5);
    FunctionJob heavy(
        &pool,
        [&] {
          WorkUntil(is_over);
          have_ended.count_down();
        },
        HostUser{.uid = 1});
    pool.Schedule(&heavy, 1);
    // Each of them pauses who goes on, and a thread is added.
    std::vector<std::unique_ptr<FunctionJob>> others;
    for (uint32_t uid = 2; uid < 6; ++uid) {
      others.push_back(std::make_unique<FunctionJob>(
          &pool,
          [&] {
            WorkUntil(is_over);
            have_ended.count_down();
          },
          HostUser{.uid = uid}));
      pool.Schedule(others.back().get(), 1);
    }
    while (pool.num_live_threads() < 4) std::this_thread::yield();
    is_over = true;
    have_ended.wait();
    while (pool.num_live_threads() > 1) std::this_thread::yield();
    EXPECT_EQ(pool.num_live_threads(), 1);
    std::latch is_served(1);
    FunctionJob light(&pool, [&] { is_served.count_down(); }, {.uid = 9});
    pool.Schedule(&light, 1);
    is_served.wait();
  }
}

TEST(HostThreadPoolTest, UsersShareTheThreadsByTimeAndNotByJobs) {
  using Clock = std::chrono::steady_clock;
  HostThreadPool pool(1);
  std::atomic<bool> is_over = false;
  std::atomic<int64_t> used[2] = {};
  constexpr int kJobs = 9;  // one of the first user, the others of the second
  std::latch have_ended(kJobs);
  std::vector<std::unique_ptr<FunctionJob>> jobs;
  for (int i = 0; i < kJobs; ++i) {
    const uint32_t uid = i == 0 ? 0 : 1;
    jobs.push_back(std::make_unique<FunctionJob>(
        &pool,
        [&, uid] {
          bool goes_on = true;
          while (goes_on && !is_over) {
            // The time between checkpoints, in which it is not paused.
            const Clock::time_point begin = Clock::now();
            while (Clock::now() - begin < std::chrono::microseconds(20)) {
            }
            used[uid] += (Clock::now() - begin).count();
            goes_on = GoesOn();
          }
          have_ended.count_down();
        },
        HostUser{.uid = uid}));
    pool.Schedule(jobs.back().get(), 1);
  }
  constexpr int64_t kEnoughNanoseconds = 200'000'000;
  while (used[0] < kEnoughNanoseconds && used[1] < 8 * kEnoughNanoseconds) {
  }
  is_over = true;
  have_ended.wait();
  // By jobs it would be a ninth.
  EXPECT_GT(3 * used[0], used[1]);
}

TEST(HostThreadPoolTest, BackgroundWorkComesBehindButGetsOn) {
  HostThreadPool pool(1);
  std::atomic<bool> is_over = false;
  std::latch have_ended(2);
  std::atomic<int> num_background = 0;
  FunctionJob serving(&pool, [&] {
    WorkUntil(is_over);
    have_ended.count_down();
  });
  std::function<void()> next;
  FunctionJob background(&pool, [&] { next(); }, {.is_background = true});
  next = [&] {
    if (++num_background < 100) {
      pool.Schedule(&background, 1);
      return;
    }
    is_over = true;
    have_ended.count_down();
  };
  pool.Schedule(&serving, 1);
  pool.Schedule(&background, 1);
  have_ended.wait();
}

TEST(HostThreadPoolTest, AStoppedJobLeavesOutTheRestAlsoWhilePaused) {
  HostThreadPool pool(1);
  std::atomic<bool> is_never = false;
  std::atomic<bool> is_over = false;
  std::latch has_begun(1);
  std::latch have_ended(3);
  FunctionJob first(&pool, [&] {
    has_begun.count_down();
    WorkUntil(is_never);
    EXPECT_FALSE(GoesOn());
    have_ended.count_down();
  });
  FunctionJob second(&pool,
                     [&] {
                       WorkUntil(is_over);
                       have_ended.count_down();
                     },
                     {.uid = 1});
  pool.Schedule(&first, 2);
  has_begun.wait();
  pool.Schedule(&second, 1);
  // One run of the first goes on, is paused, or has not begun.
  pool.Stop(&first);
  is_over = true;
  have_ended.wait();
}

TEST(HostThreadPoolTest, ProgressIsCountedWhileARunIsLong) {
  HostThreadPool pool(2);
  std::atomic<bool> is_over = false;
  std::latch has_begun(1);
  std::latch has_ended(1);
  FunctionJob heavy(&pool, [&] {
    has_begun.count_down();
    WorkUntil(is_over);
    has_ended.count_down();
  });
  pool.Schedule(&heavy, 1);
  has_begun.wait();
  for (int i = 0; i < 10; ++i) {
    const uint64_t before = pool.num_pieces();
    pool.RequestProgress();
    while (pool.num_pieces() == before) {
    }
  }
  is_over = true;
  has_ended.wait();
}

TEST(HostThreadPoolTest, ARunThatHangsIsNoProgress) {
  HostThreadPool pool(2);
  std::latch has_begun(1);
  std::latch may_end(1);
  std::latch has_ended(1);
  FunctionJob hanging(&pool, [&] {
    has_begun.count_down();
    may_end.wait();
    has_ended.count_down();
  });
  pool.Schedule(&hanging, 1);
  has_begun.wait();
  const uint64_t before = pool.num_pieces();
  pool.RequestProgress();
  EXPECT_EQ(pool.num_pieces(), before);
  may_end.count_down();
  has_ended.wait();
}

TEST(HostThreadPoolTest, ALimitOfRunsHolds) {
  HostThreadPool pool(3);
  std::atomic<int> num_inside = 0;
  std::atomic<int> most_inside = 0;
  std::latch have_ended(400);
  FunctionJob limited(&pool, [&] {
    const int inside = ++num_inside;
    if (inside > most_inside) most_inside = inside;
    GoesOn();
    --num_inside;
    have_ended.count_down();
  });
  pool.LimitRuns(&limited, 1);
  FunctionJob other(&pool,
                    [&] {
                      GoesOn();
                      have_ended.count_down();
                    },
                    {.uid = 1});
  for (int i = 0; i < 200; ++i) {
    pool.Schedule(&limited, 1);
    pool.Schedule(&other, 1);
  }
  have_ended.wait();
  EXPECT_EQ(most_inside, 1);
}

}  // namespace
}  // namespace datasetd
