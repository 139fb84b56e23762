// How long to sleep between two looks at work that does not signal its end.
//
// Sleeps double from kMinNanoseconds to kMaxNanoseconds. Near the expected end
// of a launch they are shorter: at most half of the time until that end, or
// since it. Not thread-safe.

#ifndef DATASETD_SERVER_FEED_POLL_BACKOFF_H_
#define DATASETD_SERVER_FEED_POLL_BACKOFF_H_

#include <algorithm>
#include <cstdint>

namespace datasetd {

class PollBackoff {
 public:
  static constexpr uint64_t kMinNanoseconds = 20'000;
  static constexpr uint64_t kMaxNanoseconds = 500'000;
  // No launch is running.
  static constexpr uint64_t kNever = UINT64_MAX;

  // There was progress.
  void Reset() { interval_ = kMinNanoseconds; }

  // The next sleep. `distance` is the time between now and the nearest expected
  // end of a launch, before or after it.
  uint64_t Next(uint64_t distance) {
    const uint64_t interval = interval_;
    interval_ = std::min(2 * interval, kMaxNanoseconds);
    return std::clamp(distance / 2, kMinNanoseconds, interval);
  }

 private:
  uint64_t interval_ = kMinNanoseconds;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_FEED_POLL_BACKOFF_H_
