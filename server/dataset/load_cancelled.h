// The error of loads that were given up.

#ifndef DATASETD_SERVER_DATASET_LOAD_CANCELLED_H_
#define DATASETD_SERVER_DATASET_LOAD_CANCELLED_H_

#include <atomic>

#include "absl/status/status.h"

namespace datasetd {

inline absl::Status LoadCancelled() {
  return absl::CancelledError("the load was cancelled");
}

// Returns LoadCancelled once `is_cancelled` is set.
inline absl::Status CheckNotCancelled(const std::atomic<bool>& is_cancelled) {
  return is_cancelled.load(std::memory_order_relaxed) ? LoadCancelled()
                                                      : absl::OkStatus();
}

}  // namespace datasetd

#endif  // DATASETD_SERVER_DATASET_LOAD_CANCELLED_H_
