// Feeds the service manager's watchdog only while every producer makes
// progress.
//
// A producer makes progress if it answered the last ping and, if launches were
// running at this check and the previous one, a launch or a piece of one
// (Backend::num_pieces) ended in between: slow launches are fine. A producer
// that sleeps for lack of work wakes for the ping and answers.
//
//   Watchdog watchdog(Watchdog::IntervalFromEnvironment(), &clock);
//   if (watchdog.IsDue()) {
//     absl::Status status = watchdog.Check(feeds.ProducersProgress());
//     feeds.PingProducers();
//     if (status.ok()) SdNotify("WATCHDOG=1");
//   }
//
// Checks are due three times per interval. Not thread-safe.

#ifndef DATASETD_SERVER_SYSTEMD_WATCHDOG_H_
#define DATASETD_SERVER_SYSTEMD_WATCHDOG_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/feed/producer.h"

namespace datasetd {

class Watchdog {
 public:
  // $WATCHDOG_USEC, if $WATCHDOG_PID is unset or names this process; infinite
  // otherwise or if it is not a number above 0.
  static absl::Duration IntervalFromEnvironment();

  // With an infinite interval no check is ever due. `clock` outlives the
  // watchdog.
  Watchdog(absl::Duration interval, const Clock* clock);

  // Time until the next check; infinite if there is none.
  absl::Duration TimeToNext() const;
  bool IsDue() const { return TimeToNext() <= absl::ZeroDuration(); }

  // REQUIRES: every producer was pinged after the last Check.
  //   DEADLINE_EXCEEDED  names the device whose producer is stuck, and how
  absl::Status Check(const std::map<std::string, ProducerProgress>& progress);

 private:
  const absl::Duration period_;
  const Clock* const clock_;
  absl::Duration next_;  // monotonic
  std::map<std::string, ProducerProgress> last_;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_SYSTEMD_WATCHDOG_H_
