// Destroys objects on its own thread, one after another.
//
// Meant for objects that take long to free, such as memory that is unmapped
// page by page, given up by a thread that serves others. The queue is bounded:
// an object counts against its quota and budget until it is destroyed.
//
// Thread-safe. The objects' destructors may call Destroy.

#ifndef DATASETD_SERVER_FEED_REAPER_H_
#define DATASETD_SERVER_FEED_REAPER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace datasetd {

class Reaper {
 public:
  Reaper();
  // Destroys all queued objects.
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // Queues the object and returns at once.
  template <typename T>
  void Destroy(std::unique_ptr<T> object) {
    Run([shared = std::shared_ptr<T>(std::move(object))]() mutable {
      shared.reset();
    });
  }
  // Queues a task, for what takes more than one destructor.
  void Run(std::function<void()> task);

  // Blocks until everything queued before this call is destroyed; returns false
  // if `timeout` passes first. Must not be called on the reaper's thread.
  bool Await(absl::Duration timeout) const;

 private:
  void Loop();

  mutable Mutex mutex_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_given_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_done_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_REAPER_H_
