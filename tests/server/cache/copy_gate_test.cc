#include "server/cache/copy_gate.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "cuda/backend/backend.h"
#include "gtest/gtest.h"

namespace datasetd {
namespace {

// Does nothing but tell that it was cancelled.
class CancelledStream : public Stream {
 public:
  absl::Status CopyToDevice(uint8_t*, const uint8_t*, size_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyToHost(uint8_t*, const uint8_t*, size_t) override {
    return absl::OkStatus();
  }
  absl::Status Augment(const LoadedProgram&,
                       absl::Span<const BatchTask>) override {
    return absl::OkStatus();
  }
  absl::Status Record(Event&) override { return absl::OkStatus(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  void Cancel() override {
    if (num_cancels++ == 0) is_cancelled.Notify();
  }

  absl::Notification is_cancelled;
  std::atomic<int> num_cancels = 0;
};

TEST(CopyGateTest, WithoutACopyNobodyWaits) {
  CopyGate gate;
  gate.Interrupt();
  CancelledStream stream;
  { const CopyGate::Pass pass(&gate, &stream); }
  gate.Interrupt();
  EXPECT_EQ(stream.num_cancels, 0);
}

TEST(CopyGateTest, AnInterruptCancelsTheCopyAndWaitsForItsEnd) {
  CopyGate gate;
  CancelledStream stream;
  std::optional<CopyGate::Pass> pass;
  pass.emplace(&gate, &stream);
  std::atomic<bool> has_ended = false;
  std::thread interrupter([&] {
    gate.Interrupt();
    EXPECT_TRUE(has_ended);
  });
  stream.is_cancelled.WaitForNotification();
  has_ended = true;
  pass.reset();
  interrupter.join();
  EXPECT_EQ(stream.num_cancels, 1);
}

TEST(CopyGateTest, AllWhoWaitAreLetGoBeforeTheNextCopyBegins) {
  constexpr int kNumInterrupters = 4;
  CopyGate gate;
  std::atomic<int> num_returned = 0;
  for (int round = 0; round < 200; ++round) {
    num_returned = 0;
    CancelledStream first;
    std::optional<CopyGate::Pass> pass;
    pass.emplace(&gate, &first);
    std::vector<std::thread> interrupters;
    for (int i = 0; i < kNumInterrupters; ++i) {
      interrupters.emplace_back([&] {
        gate.Interrupt();
        ++num_returned;
      });
    }
    // All of them wait now.
    while (first.num_cancels < kNumInterrupters) std::this_thread::yield();
    pass.reset();
    CancelledStream second;
    {
      const CopyGate::Pass next(&gate, &second);
      EXPECT_EQ(second.num_cancels, 0);
    }
    for (std::thread& thread : interrupters) thread.join();
    EXPECT_EQ(num_returned, kNumInterrupters);
  }
}

}  // namespace
}  // namespace datasetd
