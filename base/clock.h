// Injectable clock, so that tests control time.

#ifndef DATASETD_BASE_CLOCK_H_
#define DATASETD_BASE_CLOCK_H_

#include <cstdint>

#include "absl/time/time.h"

namespace datasetd {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Returns wall-clock time, for display and files. May jump.
  virtual absl::Time Now() const = 0;

  // Returns the time since a fixed moment. Never decreases; for deadlines and
  // durations.
  virtual absl::Duration Monotonic() const = 0;
};

// The system's clocks. CLOCK_MONOTONIC stops while the machine is suspended.
class RealClock : public Clock {
 public:
  absl::Time Now() const override;
  absl::Duration Monotonic() const override;
};

// RealClock::Monotonic.
absl::Duration MonotonicNow();

// Returns CLOCK_MONOTONIC in nanoseconds, for measurements that must be cheap.
uint64_t MonotonicNanoseconds();

}  // namespace datasetd

#endif  // DATASETD_BASE_CLOCK_H_
