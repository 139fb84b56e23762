#include "base/event_thread.h"

#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/clock.h"

namespace datasetd {
namespace {

absl::Duration ThreadTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

EventThread::EventThread(const char* name)
    : thread_([this, name] { Loop(name); }) {}

EventThread::~EventThread() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  thread_.join();
}

void EventThread::Post(std::function<void()> event) {
  MutexLock lock(&mutex_);
  events_.push_back(std::move(event));
}

void EventThread::PostAfter(absl::Duration delay, std::function<void()> event) {
  MutexLock lock(&mutex_);
  timed_.emplace(MonotonicNow() + delay, std::move(event));
  has_new_time_ = true;
}

absl::Duration EventThread::longest_event() const {
  MutexLock lock(&mutex_);
  return longest_event_;
}

absl::Duration EventThread::QueueDue() {
  has_new_time_ = false;
  const absl::Duration now = MonotonicNow();
  while (!timed_.empty() && timed_.begin()->first <= now) {
    events_.push_back(std::move(timed_.begin()->second));
    timed_.erase(timed_.begin());
  }
  return timed_.empty() ? absl::InfiniteDuration()
                        : timed_.begin()->first - now;
}

void EventThread::Loop(const char* name) {
  pthread_setname_np(pthread_self(), name);
  const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return is_stopping_ || !events_.empty() || has_new_time_;
  };
  while (true) {
    std::function<void()> event;
    {
      MutexLock lock(&mutex_);
      while (true) {
        const absl::Duration wait = QueueDue();
        if (!events_.empty()) break;
        if (is_stopping_) return;
        if (wait == absl::InfiniteDuration()) {
          mutex_.Await(Condition(&has_work));
        } else {
          mutex_.AwaitWithTimeout(Condition(&has_work), wait);
        }
      }
      event = std::move(events_.front());
      events_.pop_front();
    }
    const absl::Duration begin = ThreadTime();
    event();
    event = nullptr;
    const absl::Duration time = ThreadTime() - begin;
    MutexLock lock(&mutex_);
    longest_event_ = std::max(longest_event_, time);
  }
}

}  // namespace datasetd
