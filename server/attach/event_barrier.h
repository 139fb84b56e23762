// Lets any thread wait until an event loop has processed all events that were
// pending when the thread asked.
//
// Satisfied by an empty round, or after as many events as could have been
// queued when asked, since the loop takes its sources in turn.
//
// Thread-safe. The waiting thread calls:
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
  // False after `timeout`.
  bool Await(uint64_t number, absl::Duration timeout) const;

  // Called by the loop between two rounds. The last round processed
  // `num_events` (negative: it was interrupted), and at most `max_events` are
  // pending now. True if a thread waits, so that the next round must not block.
  bool EndRound(int64_t num_events, int64_t max_events);

 private:
  mutable Mutex mutex_;
  // The number of calls of Ask, and of those whose wait is over.
  uint64_t num_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_processed_ ABSL_GUARDED_BY(mutex_) = 0;
  // The calls that the current rounds serve (0: none), and the number of events
  // after which they are done in any case.
  uint64_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_events_left_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace datasetd

#endif  // DATASETD_SERVER_ATTACH_EVENT_BARRIER_H_
