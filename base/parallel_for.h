// A loop over indices whose rounds run on background threads of its own.
//
// The loop may grow while it runs: Start appends a range to the one before it,
// and ranges finish in order. Several may be in flight, so that no thread waits
// for the slowest round of a range. Not thread-safe.

#ifndef DATASETD_BASE_PARALLEL_FOR_H_
#define DATASETD_BASE_PARALLEL_FOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace datasetd {

class ParallelFor {
 public:
  // All loops of the process together have no more threads than this, so that
  // many loads on a large machine stay within the limit of a service.
  static constexpr int kMaxThreads = 1024;

  // Does the rounds begin, ..., end - 1, which are of one range.
  using Body = std::function<void(int64_t begin, int64_t end)>;

  struct Options {
    const char* thread_name = "";
    int num_threads = 1;
    // A thread takes several rounds at a time, if there are many, and their
    // number is a multiple of `alignment` then. REQUIRES: 1 <= min_at_once <=
    // max_at_once.
    int64_t min_at_once = 1;
    int64_t max_at_once = 1;
    int64_t alignment = 1;
  };

  // Each thread makes a body for itself. There are fewer threads, but at least
  // one, where all loops together have kMaxThreads, and where the system gives
  // no more. REQUIRES: num_threads >= 1.
  ParallelFor(const Options& options, std::function<Body()> make_body);
  // Skips the rounds that have not begun, and blocks until the others end.
  ~ParallelFor();
  ParallelFor(const ParallelFor&) = delete;
  ParallelFor& operator=(const ParallelFor&) = delete;

  // RESOURCE_EXHAUSTED if the system gave not even one thread: then there must
  // be no round.
  const absl::Status& status() const { return status_; }

  // Appends `count` rounds. REQUIRES: count >= 1, status() is OK.
  void Start(int64_t count);

  // Blocks until the oldest range that was not finished is done or `timeout`
  // passes; true if it is done. REQUIRES: there is such a range.
  bool Finish(absl::Duration timeout = absl::InfiniteDuration());

 private:
  struct Range {
    int64_t next = 0;
    int64_t end = 0;
    int64_t num_left = 0;
  };

  void Work(const Body& body);

  Options options_;
  absl::Status status_;
  Mutex mutex_;
  int64_t num_rounds_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Range> ranges_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace datasetd

#endif  // DATASETD_BASE_PARALLEL_FOR_H_
