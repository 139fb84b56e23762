#include "base/worker_pool.h"

#include <atomic>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

// Holds tasks until they may go on.
class Gate {
 public:
  void Pass() {
    const auto is_open = [this] { return is_open_; };
    MutexLock lock(&mutex_);
    ++num_waiting_;
    mutex_.Await(Condition(&is_open));
    --num_waiting_;
  }
  void Open() {
    MutexLock lock(&mutex_);
    is_open_ = true;
  }
  void AwaitWaiting(int count) {
    const auto are_there = [&] { return num_waiting_ == count; };
    MutexLock lock(&mutex_);
    mutex_.Await(Condition(&are_there));
  }

 private:
  Mutex mutex_;
  bool is_open_ = false;
  int num_waiting_ = 0;
};

TEST(WorkerPoolTest, EachTaskHasAThreadAndIdleOnesEndButOne) {
  WorkerPool pool("test", absl::Milliseconds(1));
  EXPECT_EQ(pool.num_threads(), 1);
  for (int round = 0; round < 2; ++round) {
    Gate gate;
    for (int i = 0; i < 5; ++i) pool.Run([&] { gate.Pass(); });
    gate.AwaitWaiting(5);
    EXPECT_GE(pool.num_threads(), 5);
    gate.Open();
    gate.AwaitWaiting(0);
    while (pool.num_threads() > 1) std::this_thread::yield();
  }
}

TEST(WorkerPoolTest, AnIdleThreadIsUsedAgain) {
  WorkerPool pool("test", absl::InfiniteDuration());
  for (int i = 0; i < 100; ++i) {
    std::atomic<bool> is_done = false;
    pool.Run([&] { is_done = true; });
    while (!is_done) std::this_thread::yield();
  }
  EXPECT_LE(pool.num_threads(), 3);
}

TEST(WorkerPoolTest, TheEndRunsWhatIsLeftAndDropsItsCaptures) {
  const auto shared = std::make_shared<std::atomic<int>>(0);
  {
    WorkerPool pool("test", absl::InfiniteDuration());
    for (int i = 0; i < 50; ++i) pool.Run([shared] { ++*shared; });
  }
  EXPECT_EQ(*shared, 50);
  EXPECT_EQ(shared.use_count(), 1);
}

}  // namespace
}  // namespace datasetd
