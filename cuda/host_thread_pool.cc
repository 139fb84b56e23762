#include "cuda/host_thread_pool.h"

#include <pthread.h>

namespace datasetd {

HostThreadPool::HostThreadPool(int num_threads) {
  threads_.reserve(num_threads);
  for (int i = 0; i < num_threads; ++i) {
    threads_.emplace_back([this] { Work(); });
    pthread_setname_np(threads_.back().native_handle(), "datasetd-host");
  }
}

HostThreadPool::~HostThreadPool() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void HostThreadPool::Schedule(Job* job, int num_runs) {
  if (num_runs == 0) return;
  {
    std::lock_guard lock(mutex_);
    if (job->num_runs_wanted_ == 0) PushBack(job);
    job->num_runs_wanted_ += num_runs;
  }
  for (int i = 0; i < num_runs && i < num_threads(); ++i) {
    has_work_.notify_one();
  }
}

void HostThreadPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return first_ != nullptr || is_stopping_; });
    if (first_ == nullptr) return;
    Job* job = PopFront();
    if (--job->num_runs_wanted_ > 0) PushBack(job);
    lock.unlock();
    job->Run();
    lock.lock();
  }
}

void HostThreadPool::PushBack(Job* job) {
  job->next_ = nullptr;
  (last_ == nullptr ? first_ : last_->next_) = job;
  last_ = job;
}

HostThreadPool::Job* HostThreadPool::PopFront() {
  Job* job = first_;
  first_ = job->next_;
  if (first_ == nullptr) last_ = nullptr;
  return job;
}

}  // namespace datasetd
