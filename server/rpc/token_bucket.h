// A rate limit: `burst` at once, `rate` a second in the long run. Takes the
// time as a parameter. Not thread-safe.

#ifndef DATASETD_SERVER_RPC_TOKEN_BUCKET_H_
#define DATASETD_SERVER_RPC_TOKEN_BUCKET_H_

#include <algorithm>

#include "absl/time/time.h"

namespace datasetd {

class TokenBucket {
 public:
  // Begins full. `now` is of a monotonic clock, as in all calls.
  TokenBucket(double burst, double rate, absl::Duration now)
      : burst_(burst), rate_(rate), level_(burst), filled_(now) {}

  // Takes `count` tokens, into debt if need be. False if there is a debt now.
  bool Take(double count, absl::Duration now) {
    Fill(now);
    level_ -= count;
    return level_ >= 0;
  }

  // Gives tokens back, up to the burst.
  void Give(double count) { level_ = std::min(burst_, level_ + count); }

  // Until the debt is paid; zero if there is none.
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
