#include "tests/emulated_gpu/driver/stream.h"

#include <string.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace datasetd::emulated_driver {
namespace {

thread_local bool is_in_host_function = false;

}  // namespace

bool IsInHostFunction() { return is_in_host_function; }

Stream::Stream(Scheduling& scheduling, ContextState& context, bool is_blocking,
               int priority)
    : scheduling_(scheduling),
      context_(context),
      is_blocking_(is_blocking),
      priority_(priority),
      random_(scheduling.seed * 1000003 + ++scheduling.num_streams) {}

std::shared_ptr<Completion> Stream::Give(
    Operation operation, std::vector<std::shared_ptr<Completion>> waits) {
  last_ = std::make_shared<Completion>();
  queue_.push_back(
      {std::move(operation), std::move(waits), last_, ++num_given_});
  if (!has_thread_) {
    has_thread_ = true;
    std::thread([self = shared_from_this()] { self->Work(); }).detach();
  }
  scheduling_.changed.notify_all();
  return last_;
}

void Stream::End() {
  is_ended_ = true;
  is_held_ = false;
  scheduling_.changed.notify_all();
}

void Stream::Hold(bool is_held) {
  is_held_ = is_held;
  num_allowed_ = 0;
  scheduling_.changed.notify_all();
}

void Stream::Advance(std::unique_lock<std::mutex>& lock) {
  const uint64_t target = num_given_;
  num_allowed_ = target;
  scheduling_.changed.notify_all();
  scheduling_.changed.wait(lock, [this, target] {
    if (is_running_) return false;
    return queue_.empty() || queue_.front().number > target || !IsHeadReady();
  });
  num_allowed_ = 0;
}

// True if all that the head waits for is done, or the context is lost.
bool Stream::IsHeadReady() const {
  if (context_.error != CUDA_SUCCESS || context_.is_destroyed) return true;
  const auto& waits = queue_.front().waits;
  return std::all_of(waits.begin(), waits.end(),
                     [](const auto& wait) { return wait->is_done; });
}

bool Stream::MayRunHead() const {
  if (queue_.empty() || scheduling_.is_ending) return false;
  if (context_.error != CUDA_SUCCESS || context_.is_destroyed) return true;
  return (!is_held_ || queue_.front().number <= num_allowed_) && IsHeadReady();
}

void Stream::Work() {
  std::unique_lock lock(scheduling_.mutex);
  for (;;) {
    scheduling_.changed.wait(
        lock, [this] { return MayRunHead() || (is_ended_ && queue_.empty()); });
    if (queue_.empty()) return;
    RunHead(lock);
  }
}

void Stream::RunHead(std::unique_lock<std::mutex>& lock) {
  is_running_ = true;
  Queued head = std::move(queue_.front());
  queue_.pop_front();
  const bool is_lost = context_.error != CUDA_SUCCESS || context_.is_destroyed;
  if (!is_lost && head.operation.run) {
    const CUresult injected =
        scheduling_.faults.Next(head.operation.kind, context_.device);
    // Lateness is what a program must not rely on the absence of.
    const int delay_us =
        scheduling_.max_delay_us == 0
            ? 0
            : static_cast<int>(random_() % static_cast<uint64_t>(
                                               scheduling_.max_delay_us + 1));
    lock.unlock();
    if (delay_us > 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    }
    KernelOutcome outcome;
    if (injected != CUDA_SUCCESS) {
      outcome = {injected, "injected"};
    } else {
      is_in_host_function = strcmp(head.operation.kind, "host") == 0;
      outcome = head.operation.run();
      is_in_host_function = false;
    }
    // A host function's argument may end with it.
    head.operation.run = nullptr;
    lock.lock();
    if (outcome.result != CUDA_SUCCESS && context_.error == CUDA_SUCCESS) {
      context_.error = outcome.result;
      scheduling_.journal->Fault(
          outcome.result, std::string(head.operation.kind) + " on device " +
                              std::to_string(context_.device) + ": " +
                              outcome.message);
    }
  }
  head.completion->is_done = true;
  is_running_ = false;
  scheduling_.changed.notify_all();
}

}  // namespace datasetd::emulated_driver
