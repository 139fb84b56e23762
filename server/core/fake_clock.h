// A clock that stands still until it is told otherwise.

#ifndef DATASETD_SERVER_CORE_FAKE_CLOCK_H_
#define DATASETD_SERVER_CORE_FAKE_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/core/clock.h"

namespace datasetd {

// Thread-safe.
class FakeClock : public Clock {
 public:
  // Starts at 2024-01-01 00:00 UTC, and at 1 h monotonic.
  FakeClock() = default;

  absl::Time Now() const override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }
  absl::Duration Monotonic() const override {
    absl::MutexLock lock(&mutex_);
    return monotonic_;
  }

  // Moves both. REQUIRES: by >= 0.
  void Advance(absl::Duration by) {
    absl::MutexLock lock(&mutex_);
    now_ += by;
    monotonic_ += by;
  }

  // A jump of the calendar alone, in either direction.
  void SetNow(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    now_ = now;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1704067200);
  absl::Duration monotonic_ ABSL_GUARDED_BY(mutex_) = absl::Hours(1);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_CORE_FAKE_CLOCK_H_
