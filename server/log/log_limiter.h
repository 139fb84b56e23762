// How much each user may have written to the log.
//
// A user has a number of lines of each kind and a number of bytes, which come
// back evenly over a minute: twice these at most are written in any minute.
// What is over is left out and counted by user and kind, and the count is told
// later. Users beyond `max_users` share one allowance.
//
// Thread-safe. A call takes a lock and looks two numbers up: cheap enough to be
// asked before a line is formatted.

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
    double lines_per_minute = 600;  // of a kind
    double bytes_per_minute = 512 << 10;
    size_t max_users = 1024;
  };
  struct Verdict {
    bool is_admitted = false;
    // Lines of this user and kind that were left out since it was told last;
    // for the line that is admitted to tell.
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

  // Whether a line may be written now. Kinds are few, and chosen by the daemon.
  Verdict Admit(uint32_t uid, absl::string_view kind);
  // An admitted line had so many bytes.
  void Charge(uint32_t uid, size_t size_bytes);

  // What is to be told of users who may write again, and forgets it.
  std::vector<LeftOut> TakeLeftOut();

 private:
  // Of something that comes back evenly; full when made.
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
  // Drops users of whom nothing need be known.
  void ForgetQuietUsers(absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  const Clock* const clock_;
  Mutex mutex_;
  std::map<uint32_t, User> users_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_LOG_LOG_LIMITER_H_
