// Low-priority threads: loads, scans, the cache.

#ifndef DATASETD_BASE_BACKGROUND_THREAD_H_
#define DATASETD_BASE_BACKGROUND_THREAD_H_

namespace datasetd {

// Names the calling thread (at most 15 characters) and lowers its priority
// permanently: nice 10, batch scheduling. Threads that it creates inherit both.
// If the system refuses a setting, that setting alone is skipped.
void BecomeBackgroundThread(const char* name);

}  // namespace datasetd

#endif  // DATASETD_BASE_BACKGROUND_THREAD_H_
