// A rate limit: up to `burst` at once, `rate` per second in the long run. Takes
// the time as a parameter. Not thread-safe.

#ifndef DATASETD_SERVER_RPC_TOKEN_BUCKET_H_
#define DATASETD_SERVER_RPC_TOKEN_BUCKET_H_

#include <algorithm>

#include "absl/time/time.h"

namespace datasetd {

class TokenBucket {
 public:
  // Starts full. All times are of a monotonic clock.
  TokenBucket(double burst, double rate, absl::Duration now)
      : burst_(burst), rate_(rate), level_(burst), filled_(now) {}

  // Takes `count` tokens; the level may become negative. False if it is
  // negative now.
  bool Take(double count, absl::Duration now) {
    Fill(now);
    level_ -= count;
    return level_ >= 0;
  }

  // Returns tokens, up to the burst.
  void Give(double count) { level_ = std::min(burst_, level_ + count); }

  // Time until the level is not negative; zero if it is not.
  absl::Duration TimeToPay(absl::Duration now) {
    Fill(now);
    if (level_ >= 0) return absl::ZeroDuration();
    return absl::Seconds(-level_ / rate_);
  }

  bool IsFull(absl::Duration now) {
    Fill(now);
    return level_ >= burst_;
  }

 private:
  void Fill(absl::Duration now) {
    Give(rate_ * absl::ToDoubleSeconds(now - filled_));
    filled_ = now;
  }

  const double burst_;
  const double rate_;
  double level_;
  absl::Duration filled_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_RPC_TOKEN_BUCKET_H_
