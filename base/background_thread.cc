#include "base/background_thread.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace datasetd {
namespace {

// About a tenth of a thread's share: a thread that holds a lock still makes
// progress.
constexpr int kNice = 10;

}  // namespace

absl::StatusOr<std::thread> StartThread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "threads: the system gives the daemon no more (", error.what(),
        "); try again when other loads have ended, or raise TasksMax of its "
        "unit or the limit of its container"));
  }
}

void BecomeBackgroundThread(const char* name) {
  pthread_setname_np(pthread_self(), name);
  const sched_param parameters = {};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
  // On Linux 0 is the calling thread, not its process.
  setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace datasetd
