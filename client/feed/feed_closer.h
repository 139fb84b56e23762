// The thread that ends closed feeds on a GPU.
//
// A slab may be unmapped only after the GPU has released every batch in it. The
// thread that drops the last tensor must not wait for that: it may run a
// garbage collection, hold Python's lock, or be capturing a graph. So this
// thread repeats a task until the task returns true, at intervals that double
// from 50 us to 100 ms.
//
// A process has one such thread, started by the first task; a child of fork()
// gets its own. At the end of the process, tasks that are not done are dropped:
// the daemon then frees what they hold.
//
// Thread-safe.

#ifndef DATASETD_CLIENT_FEED_FEED_CLOSER_H_
#define DATASETD_CLIENT_FEED_FEED_CLOSER_H_

#include <functional>

#include "absl/time/time.h"

namespace datasetd::client {

class FeedCloser {
 public:
  // Queues `task` and returns at once. It is called without a lock, and may
  // call Add.
  static void Add(std::function<bool()> task);

  // Blocks until every task is done; false after `timeout`. Not for tasks.
  static bool Await(absl::Duration timeout);

  // True if a task is not done.
  static bool IsBusy() { return !Await(absl::ZeroDuration()); }
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_FEED_FEED_CLOSER_H_
