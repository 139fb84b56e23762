// Time, as a parameter: what needs it takes a Clock, so that tests set it.

#ifndef DATASETD_BASE_CLOCK_H_
#define DATASETD_BASE_CLOCK_H_

#include <cstdint>

#include "absl/time/time.h"

namespace datasetd {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;

  // Of the calendar: for people and for files. May jump.
  virtual absl::Time Now() const = 0;

  // Since some fixed moment; never goes back. For deadlines and durations.
  virtual absl::Duration Monotonic() const = 0;
};

// The system's. CLOCK_MONOTONIC stands still while the machine is suspended.
class RealClock : public Clock {
 public:
  absl::Time Now() const override;
  absl::Duration Monotonic() const override;
};

// The system's monotonic clock where a measurement must cost next to nothing.
uint64_t MonotonicNanoseconds();

}  // namespace datasetd

#endif  // DATASETD_BASE_CLOCK_H_
