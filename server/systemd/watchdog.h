// Decides whether the service manager's watchdog is fed: only while every
// producer gets on.
//
// A producer gets on if it answered the last ping and, where launches ran at
// this check and the one before, one has ended between them, or a piece of one
// (Backend::num_pieces): a slow launch is no fault. One that sleeps for lack of
// work wakes for the ping and answers.
//
//   Watchdog watchdog(Watchdog::IntervalFromEnvironment(), &clock);
//   if (watchdog.IsDue()) {
//     absl::Status status = watchdog.Check(feeds.ProducersProgress());
//     feeds.PingProducers();
//     if (status.ok()) SdNotify("WATCHDOG=1");
//   }
//
// A check is due three times in the interval after which the manager ends the
// daemon. Not thread-safe.

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
  // $WATCHDOG_USEC, if $WATCHDOG_PID is unset or names this process; else, and
  // if it is no number above 0, infinite.
  static absl::Duration IntervalFromEnvironment();

  // An infinite interval: no check is ever due. `clock` outlives this.
  Watchdog(absl::Duration interval, const Clock* clock);

  // Until the next check; infinite if there is none.
  absl::Duration TimeToNext() const;
  bool IsDue() const { return TimeToNext() <= absl::ZeroDuration(); }

  // REQUIRES: after the last Check every producer was pinged.
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
