// Threads whose work nobody waits for at once: loads, scans, the cache.

#ifndef DATASETD_BASE_BACKGROUND_THREAD_H_
#define DATASETD_BASE_BACKGROUND_THREAD_H_

namespace datasetd {

// Names the calling thread (at most 15 characters) and lets it come behind the
// daemon's other threads, for good: nice 10, batch scheduling. Threads that it
// makes inherit both. Where the system refuses, only that is missing.
void BecomeBackgroundThread(const char* name);

}  // namespace datasetd

#endif  // DATASETD_BASE_BACKGROUND_THREAD_H_
