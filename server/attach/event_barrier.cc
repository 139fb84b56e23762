#include "server/attach/event_barrier.h"

#include <algorithm>

namespace datasetd {

uint64_t EventBarrier::Ask() {
  MutexLock lock(&mutex_);
  return ++num_asked_;
}

bool EventBarrier::Await(uint64_t number, absl::Duration timeout) const {
  const auto is_processed = [this, number]() ABSL_SHARED_LOCKS_REQUIRED(
                                mutex_) { return num_processed_ >= number; };
  MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(Condition(&is_processed), timeout);
}

bool EventBarrier::EndRound(int64_t num_events, int64_t max_events) {
  MutexLock lock(&mutex_);
  num_events_left_ -= std::max<int64_t>(num_events, 0);
  if (asked_ != 0 && (num_events == 0 || num_events_left_ <= 0)) {
    num_processed_ = asked_;
    asked_ = 0;
  }
  if (asked_ == 0 && num_processed_ < num_asked_) {
    asked_ = num_asked_;
    num_events_left_ = max_events;
  }
  return asked_ != 0;
}

}  // namespace datasetd
