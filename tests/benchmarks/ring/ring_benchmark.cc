// Measures the ring: a slot's way in one thread, and from thread to thread with
// the futex and the eventfd. Run:
// bazel run //tests/benchmarks/ring:ring_benchmark

#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include "benchmark/benchmark.h"
#include "proto/feed_ring.h"
#include "proto/ring_protocol.h"

namespace datasetd::ring {
namespace {

constexpr uint32_t kSlots = 8;

struct Ring {
  std::unique_ptr<DaemonPage> daemon_page = std::make_unique<DaemonPage>();
  std::unique_ptr<ClientPage> client_page = std::make_unique<ClientPage>();
  DaemonRing daemon{daemon_page.get(), client_page.get(), kSlots};
  ClientRing client{daemon_page.get(), client_page.get(), kSlots};
};

void Must(bool is_true, const char* what) {
  if (is_true) return;
  std::perror(what);
  std::abort();
}

// Published, polled, released, seen as free: no waiting, no system call.
void BM_SlotInOneThread(benchmark::State& state) {
  Ring ring;
  uint64_t sequence = 0;
  for (auto _ : state) {
    const uint32_t slot = static_cast<uint32_t>(++sequence % kSlots);
    SlotDescriptor descriptor = {};
    descriptor.sequence = sequence;
    benchmark::DoNotOptimize(ring.daemon.Publish(slot, descriptor));
    const std::optional<uint32_t> taken = ring.client.Poll(sequence);
    Must(taken == slot, "poll");
    benchmark::DoNotOptimize(ring.client.descriptor(*taken).num_samples);
    ring.client.CompleteRelease(*taken, sequence);
    benchmark::DoNotOptimize(ring.client.RequestRelease(*taken, sequence));
    Must(ring.daemon.ReleaseDone(slot) == sequence, "release");
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_SlotInOneThread);

// A round between two threads that both sleep: release and eventfd there,
// publication and futex back.
void BM_HandOverBetweenSleepers(benchmark::State& state) {
  Ring ring;
  const int wake = eventfd(0, EFD_CLOEXEC);
  Must(wake >= 0, "eventfd");
  std::thread daemon([&] {
    uint64_t sequence = 0;
    ring.daemon.SetIdle(true);
    while (true) {
      uint64_t count = 0;
      Must(read(wake, &count, sizeof(count)) == sizeof(count), "read");
      if (ring.daemon.ReadSeek().has_value()) return;  // the end
      ++sequence;
      SlotDescriptor descriptor = {};
      descriptor.sequence = sequence;
      if (ring.daemon.Publish(0, descriptor)) {
        syscall(SYS_futex, ring.daemon.wake_word(), FUTEX_WAKE, INT_MAX,
                nullptr, nullptr, 0);
      }
    }
  });
  const auto ring_bell = [&] {
    const uint64_t one = 1;
    Must(write(wake, &one, sizeof(one)) == sizeof(one), "write");
  };
  uint64_t sequence = 0;
  for (auto _ : state) {
    ring_bell();
    ++sequence;
    while (!ring.client.Poll(sequence).has_value()) {
      uint32_t word;
      (void)ring.client.BeginWait(&word);
      if (!ring.client.Poll(sequence).has_value()) {
        syscall(SYS_futex, ring.client.wake_word(), FUTEX_WAIT, word, nullptr,
                nullptr, 0);
      }
      ring.client.EndWait();
    }
    ring.client.CompleteRelease(0, sequence);
    benchmark::DoNotOptimize(ring.client.RequestRelease(0, sequence));
  }
  benchmark::DoNotOptimize(ring.client.Seek({1, 0, 0}));
  ring_bell();
  daemon.join();
  close(wake);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_HandOverBetweenSleepers)->UseRealTime();

}  // namespace
}  // namespace datasetd::ring

BENCHMARK_MAIN();
