// Limits on how long a call waits for the daemon.

#ifndef DATASETD_CLIENT_CONNECTION_CALL_LIMITS_H_
#define DATASETD_CLIENT_CONNECTION_CALL_LIMITS_H_

#include <functional>

#include "absl/time/time.h"

namespace datasetd::client {

// Called on the calling thread every kWaitInterval while a call waits.
// Returning false ends the call with CANCELLED.
using WaitFunction = std::function<bool()>;

inline constexpr absl::Duration kWaitInterval = absl::Milliseconds(100);

struct CallLimits {
  absl::Duration timeout = absl::InfiniteDuration();
  WaitFunction on_wait = nullptr;

  bool MayGoOn() const { return on_wait == nullptr || on_wait(); }
};

}  // namespace datasetd::client

#endif  // DATASETD_CLIENT_CONNECTION_CALL_LIMITS_H_
