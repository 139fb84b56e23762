#include "server/feed/reaper.h"

#include <pthread.h>

namespace datasetd {

Reaper::Reaper() : thread_([this] { Loop(); }) {}

Reaper::~Reaper() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  thread_.join();
}

void Reaper::Run(std::function<void()> task) {
  MutexLock lock(&mutex_);
  tasks_.push_back(std::move(task));
  ++num_given_;
}

bool Reaper::Await(absl::Duration timeout) const {
  MutexLock lock(&mutex_);
  const uint64_t wanted = num_given_;
  const auto is_done = [this, wanted]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_done_ >= wanted;
  };
  return mutex_.AwaitWithTimeout(Condition(&is_done), timeout);
}

void Reaper::Loop() {
  pthread_setname_np(pthread_self(), "reaper");
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
