// Nothing is allocated while work is submitted, run and waited for.

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "cuda/host/host_stream.h"
#include "cuda/host/host_thread_pool.h"
#include "cuda/kernels/program/params.h"
#include "gtest/gtest.h"

namespace {

std::atomic<int64_t> num_allocations = 0;

void* CountedMalloc(std::size_t size) {
  ++num_allocations;
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return CountedMalloc(size); }
void* operator new[](std::size_t size) { return CountedMalloc(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace datasetd {
namespace {

TEST(HostStreamAllocationTest, CounterCounts) {
  const int64_t before = num_allocations;
  ::operator delete(::operator new(1));
  EXPECT_EQ(num_allocations, before + 1);
}

TEST(HostStreamAllocationTest, ServingAllocatesNothing) {
  HostThreadPool pool(3);
  std::atomic<int> num_calls = 0;
  const HostProgram program{AugmentProgram{}};
  std::atomic<int> num_launches = 0;
  HostStream stream(
      &pool,
      [](const AugmentProgram&, const BatchTask& batch, HostPosition*) {
        ++*reinterpret_cast<std::atomic<int>*>(batch.slot);
        return true;
      },
      [&] { ++num_calls; });
  std::array<HostEvent, 8> events;
  const BatchTask task = {.slot = reinterpret_cast<uint8_t*>(&num_launches)};
  std::array<uint8_t, 64> from = {};
  std::array<uint8_t, 64> to = {};

  const int64_t before = num_allocations;
  bool is_ok = true;
  for (int round = 0; round < 100; ++round) {
    for (HostEvent& event : events) {
      is_ok &= stream.Augment(program, {&task, 1}).ok();
      is_ok &= stream.Record(event).ok();
      is_ok &= event.IsDone().ok();
    }
    is_ok &= stream.CopyToDevice(to.data(), from.data(), from.size()).ok();
    is_ok &= stream.Synchronize().ok();
  }
  EXPECT_EQ(num_allocations, before);
  EXPECT_TRUE(is_ok);
  EXPECT_EQ(num_launches, 800);
}

}  // namespace
}  // namespace datasetd
