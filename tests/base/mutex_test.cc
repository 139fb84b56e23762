#include "base/mutex.h"

#include <dlfcn.h>
#include <sys/time.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "absl/base/config.h"
#include "gtest/gtest.h"

// Sanitizers have functions of their own in the place of these.
#if !defined(ABSL_HAVE_THREAD_SANITIZER) && \
    !defined(ABSL_HAVE_ADDRESS_SANITIZER)
#define DATASETD_SETS_CLOCK
namespace day_clock {
// Added to the clock of the day.
std::atomic<int64_t> g_seconds_ahead = 0;
}  // namespace day_clock

// In the place of the C library's, for every library of this process.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  using Real = int (*)(clockid_t, timespec*);
  static const auto real =
      reinterpret_cast<Real>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (clock == CLOCK_REALTIME) time->tv_sec += day_clock::g_seconds_ahead;
  return result;
}
extern "C" int gettimeofday(timeval* time, void* zone) noexcept {
  using Real = int (*)(timeval*, void*);
  static const auto real =
      reinterpret_cast<Real>(dlsym(RTLD_NEXT, "gettimeofday"));
  const int result = real(time, zone);
  time->tv_sec += day_clock::g_seconds_ahead;
  return result;
}
#endif

namespace datasetd {
namespace {

#if defined(DATASETD_SETS_CLOCK)
// A deadline by a clock that is an hour ahead, and is set back before it comes,
// is an hour late.
TEST(MutexTest, ATimedWaitDoesNotGoByTheClockOfTheDay) {
  Mutex mutex;
  const bool never = false;
  day_clock::g_seconds_ahead = 3600;
  {
    MutexLock lock(&mutex);
    EXPECT_FALSE(mutex.AwaitWithTimeout(Condition(&never), absl::Seconds(1)));
  }
  day_clock::g_seconds_ahead = 0;
}
#endif

TEST(MutexTest, ATimedWaitEndsWhenItsConditionComesTrue) {
  Mutex mutex;
  int turn = 0;
  const auto play = [&](int own) {
    const auto is_own_turn = [&] { return turn % 2 == own; };
    for (int i = 0; i < 1000; ++i) {
      MutexLock lock(&mutex);
      ASSERT_TRUE(mutex.AwaitWithTimeout(Condition(&is_own_turn),
                                         absl::InfiniteDuration()));
      ++turn;
    }
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_EQ(turn, 2000);
}

// Also where the one that makes it true waits in the same section.
TEST(MutexTest, AWaitTellsWhatWasDoneBeforeIt) {
  Mutex mutex;
  bool is_asked = false;
  bool is_answered = false;
  std::thread other([&] {
    MutexLock lock(&mutex);
    ASSERT_TRUE(
        mutex.AwaitWithTimeout(Condition(&is_asked), absl::InfiniteDuration()));
    is_answered = true;
  });
  {
    MutexLock lock(&mutex);
    is_asked = true;
    mutex.Await(Condition(&is_answered));
  }
  other.join();
}

TEST(MutexTest, WithoutTimeItOnlyLooks) {
  Mutex mutex;
  bool flag = false;
  MutexLock lock(&mutex);
  EXPECT_FALSE(mutex.AwaitWithTimeout(Condition(&flag), absl::ZeroDuration()));
  EXPECT_FALSE(mutex.AwaitWithTimeout(Condition(&flag), absl::Seconds(-1)));
  flag = true;
  EXPECT_TRUE(mutex.AwaitWithTimeout(Condition(&flag), absl::ZeroDuration()));
}

}  // namespace
}  // namespace datasetd
