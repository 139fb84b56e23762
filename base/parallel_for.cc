#include "base/parallel_for.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/background_thread.h"

namespace datasetd {
namespace {

std::atomic<int> num_threads_of_all = 0;

// Returns how many of `wanted` threads a loop may have, and counts them.
int TakeThreads(int wanted) {
  int of_all = num_threads_of_all.load(std::memory_order_relaxed);
  int taken = 0;
  do {
    taken = std::clamp(ParallelFor::kMaxThreads - of_all, 1, wanted);
  } while (!num_threads_of_all.compare_exchange_weak(
      of_all, of_all + taken, std::memory_order_relaxed));
  return taken;
}

}  // namespace

ParallelFor::ParallelFor(const Options& options,
                         std::function<Body()> make_body)
    : options_(options) {
  options_.num_threads = TakeThreads(options.num_threads);
  for (int i = 0; i < options_.num_threads; ++i) {
    auto thread = StartThread([this, make_body] {
      BecomeBackgroundThread(options_.thread_name);
      Work(make_body());
    });
    if (!thread.ok()) {
      if (threads_.empty()) status_ = thread.status();
      break;
    }
    threads_.push_back(*std::move(thread));
  }
}

ParallelFor::~ParallelFor() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
  num_threads_of_all.fetch_sub(options_.num_threads, std::memory_order_relaxed);
}

void ParallelFor::Start(int64_t count) {
  MutexLock lock(&mutex_);
  ranges_.push_back(
      {.next = num_rounds_, .end = num_rounds_ + count, .num_left = count});
  num_rounds_ += count;
}

bool ParallelFor::Finish(absl::Duration timeout) {
  const auto is_done = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return ranges_.front().num_left == 0;
  };
  MutexLock lock(&mutex_);
  if (timeout == absl::InfiniteDuration()) {
    mutex_.Await(Condition(&is_done));
  } else if (!mutex_.AwaitWithTimeout(Condition(&is_done), timeout)) {
    return false;
  }
  ranges_.pop_front();
  return true;
}

void ParallelFor::Work(const Body& body) {
  while (true) {
    // Stays where it is until its rounds are done.
    Range* range = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
    {
      const auto next = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return std::find_if(
            ranges_.begin(), ranges_.end(),
            [](const Range& range) { return range.next < range.end; });
      };
      const auto has_work = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || next() != ranges_.end();
      };
      MutexLock lock(&mutex_, Condition(&has_work));
      if (is_stopping_) return;
      range = &*next();
      begin = range->next;
      const int64_t left = range->end - begin;
      int64_t count = left / (4 * options_.num_threads);
      count = std::clamp(count, options_.min_at_once, options_.max_at_once);
      count = std::min(count, left);
      if (count > options_.alignment) {
        count -= count % options_.alignment;
      }
      end = begin + count;
      range->next = end;
    }
    body(begin, end);
    MutexLock lock(&mutex_);
    range->num_left -= end - begin;
  }
}

}  // namespace datasetd
