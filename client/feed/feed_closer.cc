#include "client/feed/feed_closer.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "client/connection/guarded_fd.h"

namespace datasetd::client {
namespace {

using Task = std::function<bool()>;

constexpr std::chrono::microseconds kMinPause(50);
constexpr std::chrono::microseconds kMaxPause(100'000);
// How long the end of the process waits for a driver call of the thread.
constexpr std::chrono::seconds kMaxEnd(1);

// Never destroyed: tasks may come until the process is gone.
class Closer {
 public:
  // The one of this process.
  static Closer& Get();

  void Add(Task task) {
    std::unique_lock lock(mutex_);
    if (is_stopping_) return;
    tasks_.push_back(std::move(task));
    has_new_ = true;
    StopAtExit();
    // Where no thread can be had now, the next task tries again.
    has_thread_ = has_thread_ || StartThread();
    changed_.notify_all();
  }

  bool Await(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoMicroseconds(timeout), [this] {
      return tasks_.empty() && num_running_ == 0;
    });
  }

 private:
  static void StopAtExit();
  bool StartThread();
  void Loop();
  void Stop();

  const uint64_t fork_generation_ = ForkGeneration();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> tasks_;
  size_t num_running_ = 0;
  bool has_new_ = false;
  bool has_thread_ = false;
  bool is_stopping_ = false;
  bool has_ended_ = false;
};

std::atomic<Closer*> g_closer{nullptr};

Closer& Closer::Get() {
  Closer* closer = g_closer.load(std::memory_order_acquire);
  if (closer != nullptr && closer->fork_generation_ == ForkGeneration()) {
    return *closer;
  }
  // A parent's, whose mutex may be locked for ever here, is left alone.
  auto own = std::make_unique<Closer>();
  if (g_closer.compare_exchange_strong(closer, own.get())) {
    return *own.release();
  }
  return *closer;
}

// Runs before the driver's own exit handlers, which were registered earlier.
void Closer::StopAtExit() {
  static std::atomic<bool> is_registered{false};
  if (is_registered.exchange(true)) return;
  std::atexit([] {
    Closer* const closer = g_closer.load(std::memory_order_acquire);
    if (closer->fork_generation_ == ForkGeneration()) closer->Stop();
  });
}

// Not std::thread, which throws. Signals are for the threads of the program.
bool Closer::StartThread() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int error = pthread_create(
      &thread, nullptr,
      [](void* closer) -> void* {
        static_cast<Closer*>(closer)->Loop();
        return nullptr;
      },
      this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) pthread_detach(thread);
  return error == 0;
}

void Closer::Loop() {
  pthread_setname_np(pthread_self(), "datasetd-closer");
  std::unique_lock lock(mutex_);
  std::chrono::microseconds pause = kMinPause;
  while (!is_stopping_) {
    if (tasks_.empty()) {
      changed_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
      continue;
    }
    if (std::exchange(has_new_, false)) pause = kMinPause;
    std::vector<Task> tasks;
    tasks.swap(tasks_);
    num_running_ = tasks.size();
    lock.unlock();
    std::erase_if(tasks, [](const Task& task) { return task(); });
    lock.lock();
    std::move(tasks.begin(), tasks.end(), std::back_inserter(tasks_));
    num_running_ = 0;
    changed_.notify_all();
    if (tasks_.empty()) continue;
    changed_.wait_for(lock, pause, [this] { return is_stopping_ || has_new_; });
    pause = std::min(2 * pause, kMaxPause);
  }
  has_ended_ = true;
  changed_.notify_all();
}

void Closer::Stop() {
  std::unique_lock lock(mutex_);
  is_stopping_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kMaxEnd,
                    [this] { return has_ended_ || !has_thread_; });
}

}  // namespace

void FeedCloser::Add(std::function<bool()> task) {
  Closer::Get().Add(std::move(task));
}

bool FeedCloser::Await(absl::Duration timeout) {
  return Closer::Get().Await(timeout);
}

}  // namespace datasetd::client
