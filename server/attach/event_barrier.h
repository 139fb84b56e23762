// Lets any thread wait until an event loop has taken all events that were there
// when the thread asked.
//
// All is taken when a round of the loop finds nothing more. Where events never
// end to come, it is when there were as many as could be there at first: the
// loop takes its sources in turn.
//
// Thread-safe. The one who asks:
//
//   const uint64_t number = barrier.Ask();
//   ... wake the loop ...
//   barrier.Await(number, timeout);

#ifndef DATASETD_SERVER_ATTACH_EVENT_BARRIER_H_
#define DATASETD_SERVER_ATTACH_EVENT_BARRIER_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace datasetd {

class EventBarrier {
 public:
  uint64_t Ask();
  // False when the time is over.
  bool Await(uint64_t number, absl::Duration timeout) const;

  // Of the loop, between two rounds: whether somebody waits, so that the next
  // round must not. The last round took `num_events` (negative: it was broken
  // off); at most `max_events` are there now.
  bool EndRound(int64_t num_events, int64_t max_events);

 private:
  mutable Mutex mutex_;
  // Calls of Ask, and those of them whose wait is over.
  uint64_t num_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_heard_ ABSL_GUARDED_BY(mutex_) = 0;
  // The calls that the rounds are for now (0: there is none), and the events
  // after which they are over in any case.
  uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_events_left_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_EVENT_BARRIER_H_
