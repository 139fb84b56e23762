#include "base/clock.h"

#include <ctime>

#include "absl/time/clock.h"

namespace datasetd {

absl::Time RealClock::Now() const { return absl::Now(); }

absl::Duration RealClock::Monotonic() const { return MonotonicNow(); }

absl::Duration MonotonicNow() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);  // cannot fail for this clock
  return absl::DurationFromTimespec(now);
}

uint64_t MonotonicNanoseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace datasetd
