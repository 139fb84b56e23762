// absl::Mutex whose timed waits go by the monotonic clock: those of the
// system's Abseil go by the clock of the day, and take longer when that is set
// back. Under ThreadSanitizer a standard mutex, because that Abseil is not
// instrumented.

#ifndef DATASETD_BASE_MUTEX_H_
#define DATASETD_BASE_MUTEX_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/config.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace datasetd {

using Condition = absl::Condition;

namespace mutex_internal {
// Longer waits would overflow the clock.
inline constexpr absl::Duration kLongest = absl::Hours(24 * 365);
}  // namespace mutex_internal

#if defined(ABSL_HAVE_THREAD_SANITIZER)

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.try_lock();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    changed_.notify_all();
    mutex_.unlock();
  }
  void Await(const Condition& condition) {
    changed_.notify_all();
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    changed_.wait(lock, [&] { return condition.Eval(); });
    lock.release();
  }
  bool AwaitWithTimeout(const Condition& condition, absl::Duration timeout) {
    changed_.notify_all();
    std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
    const bool is_true = changed_.wait_for(
        lock,
        absl::ToChronoMilliseconds(std::min(timeout, mutex_internal::kLongest)),
        [&] { return condition.Eval(); });
    lock.release();
    return is_true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

#else

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.Lock(); }
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.TryLock();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    WakeTimed();
    mutex_.Unlock();
  }
  void Await(const Condition& condition) {
    WakeTimed();
    mutex_.Await(condition);
  }
  // Returns whether the condition holds.
  bool AwaitWithTimeout(const Condition& condition,
                        absl::Duration timeout) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    WakeTimed();
    const auto deadline =
        std::chrono::steady_clock::now() +
        absl::ToChronoNanoseconds(std::min(timeout, mutex_internal::kLongest));
    ++num_timed_;
    bool is_true = condition.Eval();
    while (!is_true && std::chrono::steady_clock::now() < deadline) {
      // Whoever changes what is waited for holds mutex_ and takes this one
      // next, so that no change is missed.
      std::unique_lock<std::mutex> lock(timed_mutex_);
      mutex_.Unlock();
      changed_.wait_until(lock, deadline);
      lock.unlock();
      mutex_.Lock();
      is_true = condition.Eval();
    }
    --num_timed_;
    return is_true;
  }

 private:
  void WakeTimed() {
    if (num_timed_ == 0) return;
    const std::lock_guard<std::mutex> lock(timed_mutex_);
    changed_.notify_all();
  }

  absl::Mutex mutex_;
  int num_timed_ = 0;  // waits; guarded by mutex_
  std::mutex timed_mutex_;
  std::condition_variable changed_;
};

#endif

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->Lock();
  }
  // Blocks until `condition` holds.
  MutexLock(Mutex* mutex, const Condition& condition)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->Lock();
    mutex_->Await(condition);
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Locks the mutex if it is free; never blocks. Check is_locked().
class ABSL_SCOPED_LOCKABLE TryMutexLock {
 public:
  explicit TryMutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex), is_locked_(mutex->TryLock()) {}
  ~TryMutexLock() ABSL_UNLOCK_FUNCTION() {
    if (is_locked_) mutex_->Unlock();
  }

  TryMutexLock(const TryMutexLock&) = delete;
  TryMutexLock& operator=(const TryMutexLock&) = delete;

  bool is_locked() const { return is_locked_; }

 private:
  Mutex* const mutex_;
  const bool is_locked_;
};

}  // namespace datasetd

#endif  // DATASETD_BASE_MUTEX_H_
