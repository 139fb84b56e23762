#include "cuda/host_thread_pool.h"

#include <atomic>
#include <functional>
#include <latch>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;

class FunctionJob final : public HostThreadPool::Job {
 public:
  explicit FunctionJob(std::function<void()> run) : run_(std::move(run)) {}
  void Run() override { run_(); }

 private:
  const std::function<void()> run_;
};

TEST(HostThreadPoolTest, RunsAsOftenAsAsked) {
  HostThreadPool pool(3);
  EXPECT_EQ(pool.num_threads(), 3);
  std::latch all(1000);
  FunctionJob job([&] { all.count_down(); });
  for (int i = 0; i < 100; ++i) pool.Schedule(&job, 10);
  pool.Schedule(&job, 0);
  all.wait();
}

TEST(HostThreadPoolTest, OneJobRunsOnSeveralThreadsAtOnce) {
  HostThreadPool pool(3);
  std::latch meeting(3);
  std::latch done(3);
  // Each run waits for the other two.
  FunctionJob job([&] {
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
  FunctionJob gate([&] { may_start.wait(); });
  FunctionJob a([&] {
    order.push_back('a');
    done.count_down();
  });
  FunctionJob b([&] {
    order.push_back('b');
    done.count_down();
  });
  pool.Schedule(&gate, 1);
  pool.Schedule(&a, 3);
  pool.Schedule(&b, 2);
  may_start.count_down();
  done.wait();
  EXPECT_THAT(order, ElementsAre('a', 'b', 'a', 'b', 'a'));
}

TEST(HostThreadPoolTest, RunMaySchedule) {
  HostThreadPool pool(2);
  std::atomic<int> left = 100;
  std::latch done(1);
  std::function<void()> next;
  FunctionJob job([&] { next(); });
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

}  // namespace
}  // namespace datasetd
