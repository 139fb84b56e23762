#include "base/background_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

namespace datasetd {
namespace {

// A tenth of a thread's share, so that one with a lock still gets on.
constexpr int kNice = 10;

}  // namespace

void BecomeBackgroundThread(const char* name) {
  pthread_setname_np(pthread_self(), name);
  const sched_param parameters = {};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
  // On Linux 0 is the calling thread, not its process.
  setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace datasetd
