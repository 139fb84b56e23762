// A clock that stands still until it is told otherwise.

#ifndef DATASETD_TESTS_TESTING_FAKE_CLOCK_H_
#define DATASETD_TESTS_TESTING_FAKE_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace datasetd {

// Thread-safe.
class FakeClock : public Clock {
 public:
  // Starts at 2024-01-01 00:00 UTC, and at 1 h monotonic.
  FakeClock() = default;

  absl::Time Now() const override {
    MutexLock lock(&mutex_);
    return now_;
  }
  absl::Duration Monotonic() const override {
    MutexLock lock(&mutex_);
    return monotonic_;
  }

  // Moves both. REQUIRES: by >= 0.
  void Advance(absl::Duration by) {
    MutexLock lock(&mutex_);
    now_ += by;
    monotonic_ += by;
  }

  // A jump of the calendar alone, in either direction.
  void SetNow(absl::Time now) {
    MutexLock lock(&mutex_);
    now_ = now;
  }

 private:
  mutable Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1704067200);
  absl::Duration monotonic_ ABSL_GUARDED_BY(mutex_) = absl::Hours(1);
};

}  // namespace datasetd

#endif  // DATASETD_TESTS_TESTING_FAKE_CLOCK_H_
