// Limits how much each user may cause to be logged.
//
// Each user has an allowance of lines per kind and of bytes, which refills
// evenly over a minute; at most twice these amounts are written in any minute.
// Suppressed lines are counted by user and kind, and the count is reported
// later. Users beyond `max_users` share one allowance.
//
// Thread-safe. A call takes a lock and does two look-ups: cheap enough to call
// before formatting a line.

#ifndef DATASETD_SERVER_LOG_LOG_LIMITER_H_
#define DATASETD_SERVER_LOG_LOG_LIMITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace datasetd {

class LogLimiter {
 public:
  struct Options {
    double lines_per_minute = 600;  // per kind
    double bytes_per_minute = 512 << 10;
    size_t max_users = 1024;
  };
  struct Verdict {
    bool is_admitted = false;
    // Suppressed lines of this user and kind since the last report; to be
    // reported by the admitted line.
    uint64_t num_left_out = 0;
  };
  struct LeftOut {
    uint32_t uid;
    std::string kind;
    uint64_t num_lines;
  };

  // `clock` outlives the limiter.
  LogLimiter(const Options& options, const Clock* clock)
      : options_(options), clock_(clock) {}

  // Decides if a line may be written now. The daemon defines the kinds, which
  // are few.
  Verdict Admit(uint32_t uid, absl::string_view kind);
  // Charges the size of an admitted line.
  void Charge(uint32_t uid, size_t size_bytes);

  // Returns and clears the counts of users who may write again.
  std::vector<LeftOut> TakeLeftOut();

 private:
  // An amount that refills evenly; starts full.
  struct Allowance {
    double left;
    absl::Duration updated;
  };
  struct Kind {
    Allowance lines;
    uint64_t num_left_out = 0;
  };
  struct User {
    Allowance bytes;
    std::map<std::string, Kind, std::less<>> kinds;
  };

  static void Refill(Allowance& allowance, double per_minute,
                     absl::Duration now);
  User& FindUser(uint32_t uid, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops users with full allowances and nothing to report.
  void ForgetQuietUsers(absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock* const clock_;
  Mutex mutex_;
  std::map<uint32_t, User> users_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOG_LIMITER_H_
