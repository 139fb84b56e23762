// Destroys objects on a thread of its own, one after another.
//
// For what takes long to free, such as memory that is unmapped page by page or
// a device that must be waited for, where the thread that gives it up serves
// others. What waits here is bounded by what exists: an object counts against
// its quota and its budget until it is destroyed.
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
  // Destroys all that it was given.
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // Returns at once.
  template <typename T>
  void Destroy(std::unique_ptr<T> object) {
    Run([shared = std::shared_ptr<T>(std::move(object))]() mutable {
      shared.reset();
    });
  }
  // The same for what takes more than one destructor.
  void Run(std::function<void()> task);

  // Waits until all that was given before this call is destroyed; false if
  // `timeout` passes first. Not to be called by a destructor that it runs.
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
