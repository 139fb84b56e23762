// Runs each task on a background thread at once: on an idle one, else on a new
// one. Threads that stay idle end, all but one, so that tasks run, one after
// another, also while the system gives no more threads.
//
// Whoever gives the tasks limits how many there are. Thread-safe.

#ifndef DATASETD_BASE_WORKER_POOL_H_
#define DATASETD_BASE_WORKER_POOL_H_

#include <deque>
#include <functional>
#include <list>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace datasetd {

class WorkerPool {
 public:
  // `name`, of the threads, has at most 15 characters. A thread ends after
  // `idle_time` without a task.
  WorkerPool(const char* name, absl::Duration idle_time);
  // Runs all tasks that are left.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void Run(std::function<void()> task);

  int num_threads() const;

 private:
  // False if the system gives no thread.
  bool AddThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Loop(std::list<std::thread>::iterator self);

  const char* const name_;
  const absl::Duration idle_time_;
  mutable Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::list<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  std::list<std::thread> ended_ ABSL_GUARDED_BY(mutex_);  // to be joined
  size_t num_idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace datasetd

#endif  // DATASETD_BASE_WORKER_POOL_H_
