#include "base/worker_pool.h"

#include <utility>

#include "base/background_thread.h"
#include "base/require.h"

namespace datasetd {

WorkerPool::WorkerPool(const char* name, absl::Duration idle_time)
    : name_(name), idle_time_(idle_time) {
  MutexLock lock(&mutex_);
  Require(AddThread(), "a pool has a thread");
}

WorkerPool::~WorkerPool() {
  const auto have_ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return threads_.empty();
  };
  std::list<std::thread> ended;
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
    mutex_.Await(Condition(&have_ended));
    ended.swap(ended_);
  }
  for (std::thread& thread : ended) thread.join();
}

void WorkerPool::Run(std::function<void()> task) {
  std::list<std::thread> ended;
  {
    MutexLock lock(&mutex_);
    tasks_.push_back(std::move(task));
    ended.swap(ended_);
    if (num_idle_ < tasks_.size()) AddThread();
  }
  for (std::thread& thread : ended) thread.join();
}

int WorkerPool::num_threads() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(threads_.size());
}

bool WorkerPool::AddThread() {
  const auto self = threads_.emplace(threads_.end());
  auto thread = StartThread([this, self] { Loop(self); });
  if (!thread.ok()) {
    threads_.erase(self);
    return false;
  }
  *self = *std::move(thread);
  return true;
}

void WorkerPool::Loop(std::list<std::thread>::iterator self) {
  BecomeBackgroundThread(name_);
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_stopping_ || !tasks_.empty();
  };
  MutexLock lock(&mutex_);
  while (true) {
    ++num_idle_;
    mutex_.AwaitWithTimeout(Condition(&has_work), idle_time_);
    --num_idle_;
    if (tasks_.empty()) {
      if (!is_stopping_ && threads_.size() == 1) continue;
      ended_.splice(ended_.end(), threads_, self);
      return;
    }
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    mutex_.Unlock();
    task();
    task = nullptr;
    mutex_.Lock();
  }
}

}  // namespace datasetd
