#include "base/worker.h"

#include <pthread.h>

#include <utility>

namespace datasetd {

Worker::Worker(const char* name) : thread_([this, name] { Loop(name); }) {}

Worker::~Worker() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  thread_.join();
}

void Worker::Run(std::function<void()> task) {
  MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  ++num_given_;
}

bool Worker::Await(absl::Duration timeout) const {
  MutexLock lock(&mutex_);
  const uint64_t wanted = num_given_;
  const auto is_done = [this, wanted]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_done_ >= wanted;
  };
  return mutex_.AwaitWithTimeout(Condition(&is_done), timeout);
}

void Worker::Loop(const char* name) {
  pthread_setname_np(pthread_self(), name);
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_stopping_ || !tasks_.empty();
  };
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(&mutex_, Condition(&has_work));
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
    // Destroy the task's captures before it counts as done.
    task = nullptr;
    MutexLock lock(&mutex_);
    ++num_done_;
  }
}

}  // namespace datasetd
