// A thread that owns data: it runs the events that touch them, one after
// another, in the order in which they were given.
//
// Unlike a Worker it answers, knows the time, and its events are short.
// Thread-safe. Events may give more of them.

#ifndef DATASETD_BASE_EVENT_THREAD_H_
#define DATASETD_BASE_EVENT_THREAD_H_

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace datasetd {

class EventThread {
 public:
  // `name`, of the thread, has at most 15 characters.
  explicit EventThread(const char* name);
  // Runs all events that are left, but not those whose time has not come.
  ~EventThread();
  EventThread(const EventThread&) = delete;
  EventThread& operator=(const EventThread&) = delete;

  // Queues the event and returns at once.
  void Post(std::function<void()> event);
  // Queues the event after a time of the monotonic clock.
  void PostAfter(absl::Duration delay, std::function<void()> event);

  // Runs `event` in its turn and returns what it returns. Must not be called by
  // an event.
  template <typename Event>
  auto Call(const Event& event) {
    std::optional<decltype(event())> result;
    Mutex mutex;
    bool is_done = false;
    Post([&] {
      result.emplace(event());
      MutexLock lock(&mutex);
      is_done = true;
    });
    MutexLock lock(&mutex, Condition(&is_done));
    return *std::move(result);
  }

  // The most processor time that one event took.
  absl::Duration longest_event() const;

 private:
  void Loop(const char* name);
  // Queues the events whose time has come. Returns the time until the next one.
  absl::Duration QueueDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::deque<std::function<void()>> events_ ABSL_GUARDED_BY(mutex_);
  std::multimap<absl::Duration, std::function<void()>> timed_
      ABSL_GUARDED_BY(mutex_);
  bool has_new_time_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration longest_event_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_BASE_EVENT_THREAD_H_
