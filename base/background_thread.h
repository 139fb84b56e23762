// Threads of loads, scans and the cache.

#ifndef DATASETD_BASE_BACKGROUND_THREAD_H_
#define DATASETD_BASE_BACKGROUND_THREAD_H_

#include <functional>
#include <thread>

#include "absl/status/statusor.h"

namespace datasetd {

// Starts a thread.
//   RESOURCE_EXHAUSTED  the system gives no more
absl::StatusOr<std::thread> StartThread(std::function<void()> body);

// Names the calling thread (at most 15 characters) and lowers its priority
// permanently: nice 10, batch scheduling. Threads that it creates inherit both.
// If the system refuses a setting, that setting alone is skipped.
void BecomeBackgroundThread(const char* name);

}  // namespace datasetd

#endif  // DATASETD_BASE_BACKGROUND_THREAD_H_
