// Runs tasks on one thread for each user who has some: a task that takes long,
// or never returns, costs that user alone.
//
// The tasks of a user run one after another, in the order in which they were
// given. A thread lives while its user has tasks. Thread-safe.

#ifndef DATASETD_SERVER_ATTACH_USER_THREADS_H_
#define DATASETD_SERVER_ATTACH_USER_THREADS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace datasetd {

class UserThreads {
 public:
  // `name`, of the threads, has at most 15 characters and lives as long as the
  // process.
  UserThreads(const char* name, absl::Duration end_timeout);
  // Drops the tasks that have not begun, and waits for the others for at most
  // end_timeout: after that they must use nothing that is destroyed.
  ~UserThreads();
  UserThreads(const UserThreads&) = delete;
  UserThreads& operator=(const UserThreads&) = delete;

  // Queues the task and returns at once. The task is destroyed on its thread.
  //   RESOURCE_EXHAUSTED  the system gives no thread; the task is not run
  absl::Status Run(uint32_t uid, std::function<void()> task);

  // Tasks of this user that have not ended.
  size_t num_tasks(uint32_t uid) const;

 private:
  using Tasks = std::deque<std::function<void()>>;
  struct State {
    Mutex mutex;
    // Of the users who have a thread. The first task of each is running.
    std::map<uint32_t, Tasks> tasks ABSL_GUARDED_BY(mutex);
    bool is_stopping ABSL_GUARDED_BY(mutex) = false;
  };
  static void Loop(State& state, uint32_t uid);

  const char* const name_;
  const absl::Duration end_timeout_;
  const std::shared_ptr<State> state_;  // the threads' as well
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_USER_THREADS_H_
