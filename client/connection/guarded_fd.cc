#include "client/connection/guarded_fd.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <utility>

namespace datasetd::client {
namespace {

// Descriptors plus 1; 0 is free. Accessed without locks, because the child
// handler may only call async-signal-safe functions.
std::atomic<int> g_entries[kMaxGuardedFds];
std::atomic<uint64_t> g_generation{1};

void CloseInChild() {
  g_generation.fetch_add(1, std::memory_order_relaxed);
  for (std::atomic<int>& entry : g_entries) {
    const int value = entry.exchange(0, std::memory_order_relaxed);
    if (value > 0) close(value - 1);
  }
}

int Register(int fd) {
  static const int registered = pthread_atfork(nullptr, nullptr, CloseInChild);
  (void)registered;
  for (int i = 0; i < kMaxGuardedFds; ++i) {
    int expected = 0;
    if (g_entries[i].load(std::memory_order_relaxed) == 0 &&
        g_entries[i].compare_exchange_strong(expected, fd + 1)) {
      return i;
    }
  }
  return -1;
}

}  // namespace

uint64_t ForkGeneration() {
  return g_generation.load(std::memory_order_relaxed);
}

GuardedFd::GuardedFd(int fd) : fd_(fd), generation_(ForkGeneration()) {
  if (fd_ >= 0) entry_ = Register(fd_);
}

GuardedFd::GuardedFd(GuardedFd&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      entry_(std::exchange(other.entry_, -1)),
      generation_(other.generation_) {}

GuardedFd& GuardedFd::operator=(GuardedFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
    entry_ = std::exchange(other.entry_, -1);
    generation_ = other.generation_;
  }
  return *this;
}

void GuardedFd::Reset() {
  const int fd = Release();
  if (fd >= 0) close(fd);
}

int GuardedFd::Release() {
  const int fd = std::exchange(fd_, -1);
  const int entry = std::exchange(entry_, -1);
  if (fd < 0 || generation_ != ForkGeneration()) return -1;
  if (entry >= 0) g_entries[entry].store(0);
  return fd;
}

}  // namespace datasetd::client
