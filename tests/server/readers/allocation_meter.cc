#include "tests/server/readers/allocation_meter.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// The test is single-threaded where it measures.
std::atomic<int64_t> held_bytes = 0;
std::atomic<int64_t> peak_bytes = 0;

}  // namespace

void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  held_bytes += static_cast<int64_t>(malloc_usable_size(memory));
  peak_bytes = std::max(peak_bytes.load(), held_bytes.load());
  return memory;
}

// For std::stable_partition and its like.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return operator new(size);
}

void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  held_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace datasetd::testing {

AllocationMeter::AllocationMeter() : bytes_at_start_(held_bytes) {
  ::peak_bytes = held_bytes.load();
}

int64_t AllocationMeter::peak_bytes() const {
  return ::peak_bytes - bytes_at_start_;
}

}  // namespace datasetd::testing
