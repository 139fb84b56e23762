// A thread that runs tasks one after another, in the order in which they were
// given.
//
// Meant for what takes long or must not run with the locks of whoever asks for
// it. Thread-safe. Tasks may give more of them.

#ifndef DATASETD_BASE_WORKER_H_
#define DATASETD_BASE_WORKER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace datasetd {

class Worker {
 public:
  // `name`, of the thread, has at most 15 characters.
  explicit Worker(const char* name);
  // Runs all tasks that are left.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Queues the task and returns at once.
  void Run(std::function<void()> task);

  // Blocks until every task queued before this call has run; returns false if
  // `timeout` passes first. Must not be called by a task.
  bool Await(absl::Duration timeout) const;

 private:
  void Loop(const char* name);

  mutable Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_given_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_BASE_WORKER_H_
