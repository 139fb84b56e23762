#include "base/background_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

namespace datasetd {
namespace {

// About a tenth of a thread's share: a thread that holds a lock still makes
// progress.
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
