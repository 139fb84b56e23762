#include "tests/testing/fake_notifier.h"

#include <utility>

namespace datasetd {

FakeNotifier::FakeNotifier() : thread_([this] { Work(); }) {}

FakeNotifier::~FakeNotifier() {
  {
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FakeNotifier::Post(std::function<void()> call) {
  {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    ++num_posted_;
  }
  changed_.notify_all();
}

void FakeNotifier::Drain() {
  std::unique_lock lock(mutex_);
  const uint64_t target = num_posted_;
  changed_.wait(lock, [&] { return num_returned_ >= target; });
}

void FakeNotifier::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !calls_.empty() || is_stopping_; });
    if (calls_.empty()) return;
    const std::function<void()> call = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    call();
    lock.lock();
    ++num_returned_;
    changed_.notify_all();
  }
}

}  // namespace datasetd
