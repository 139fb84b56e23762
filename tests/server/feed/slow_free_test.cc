// One user's memory takes long to free, as gigabytes do, and cudaFree that
// waits for other kernels: other users' feeds go on, and calls are answered.

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status_macros.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/feed/feed_table.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/faulty_backend.h"
#include "tests/testing/memory_channel.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::CountedExport;
using ::datasetd::testing::FakeSource;
using ::datasetd::testing::FaultyBackend;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::MemoryChannel;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SourceGate;
using ::datasetd::testing::With;
using ::testing::SizeIs;

constexpr Caller kAlice = {.session_id = 1, .uid = 1000, .pid = 10};
constexpr Caller kBob = {.session_id = 2, .uid = 1001, .pid = 20};
constexpr absl::Duration kLong = absl::Seconds(30);

v1::OpenFeedRequest Request() {
  return With(v1::OpenFeedRequest(),
              "options { dataset: 'a' batch_size: 4 prefetch: 2 }");
}

// Where frees wait, while it is shut.
class Gate {
 public:
  void Shut() { is_shut_ = true; }
  void Open() {
    is_shut_ = false;
    if (!is_open_.HasBeenNotified()) is_open_.Notify();
  }
  void Pass() {
    if (!is_shut_.exchange(false)) return;
    is_reached_.Notify();
    is_open_.WaitForNotification();
  }
  bool AwaitReached() {
    return is_reached_.WaitForNotificationWithTimeout(kLong);
  }

 private:
  std::atomic<bool> is_shut_ = false;
  absl::Notification is_reached_;
  absl::Notification is_open_;
};

// The state that the slabs of a backend share.
struct SlabState {
  Gate gate;
  std::atomic<int> num_live = 0;
  std::atomic<int> num_revoked = 0;
  ExportKind said_kind = ExportKind::kMemfd;
  std::atomic<ExportedMemory*> last = nullptr;
};

class SlowSlab final : public CountedExport {
 public:
  SlowSlab(std::unique_ptr<ExportedMemory> memory, SlabState* state)
      : CountedExport(std::move(memory), &state->num_live), state_(state) {
    state_->last = this;
  }
  ~SlowSlab() override { state_->gate.Pass(); }
  ExportKind export_kind() const override { return state_->said_kind; }
  void Revoke() override {
    ++state_->num_revoked;
    CountedExport::Revoke();
  }

 private:
  SlabState* const state_;
};

class SlowFreeBackend final : public FaultyBackend {
 public:
  explicit SlowFreeBackend(SlabState* state)
      : FaultyBackend(CreateHostBackend({.num_threads = 1})), state_(state) {}
  absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateExported(
      size_t size_bytes, ExportKind kind) override {
    DATASETD_ASSIGN_OR_RETURN(
        auto memory, FaultyBackend::AllocateExported(size_bytes, kind));
    return std::make_unique<SlowSlab>(std::move(memory), state_);
  }

 private:
  SlabState* const state_;
};

class SlowFreeTest : public ::testing::Test {
 protected:
  SlowFreeTest() {
    std::vector<ServedDevice> devices(1);
    devices[0].backend = std::make_unique<SlowFreeBackend>(&slabs_);
    devices[0].budget = std::make_unique<MemoryBudget>(64 << 20);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{}, devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          return std::make_unique<FakeSource>(10, 1, spec.path(), 7,
                                              &source_gate_);
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
    EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
    EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", kLong)->state,
              DatasetState::kReady);
    auto table = FeedTable::Create(
        {}, devices_.get(), registry_.get(),
        [this](uint32_t num_slots)
            -> absl::StatusOr<std::unique_ptr<FeedChannel>> {
          auto channel = std::make_unique<MemoryChannel>(num_slots);
          channel_ = channel.get();
          return channel;
        },
        &clock_, [](const char*, const FeedInfo&) {},
        [](uint64_t, absl::Status status) {
          ADD_FAILURE() << status.ToString();
        });
    EXPECT_THAT(table, IsOk());
    table_ = *std::move(table);
  }
  ~SlowFreeTest() override { gate_.Open(); }

  // Attached.
  uint64_t Open(const Caller& caller) {
    const auto opened = table_->Open(Request(), caller);
    EXPECT_THAT(opened, IsOk());
    EXPECT_THAT(table_->Attach(opened->feed_id(), caller.session_id), IsOk());
    return opened->feed_id();
  }
  uint64_t slab_bytes() const {
    return devices_->devices()[0].budget->used_bytes_of_kind(MemoryKind::kSlab);
  }
  // False if `function` does not return in a time that no lock explains.
  static bool Returns(Gate* gate, const std::function<void()>& function) {
    absl::Notification has_returned;
    std::thread thread([&] {
      function();
      has_returned.Notify();
    });
    const bool returned =
        has_returned.WaitForNotificationWithTimeout(absl::Seconds(10));
    if (!returned) gate->Open();
    thread.join();
    return returned;
  }

  SourceGate source_gate_;
  SlabState slabs_;
  Gate& gate_ = slabs_.gate;
  FakeClock clock_;
  MemoryChannel* channel_ = nullptr;  // of the last feed
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> registry_;
  std::unique_ptr<FeedTable> table_;
};

TEST_F(SlowFreeTest, AnEndedFeedsMemoryHoldsUpNobody) {
  const uint64_t alices = Open(kAlice);
  Open(kBob);
  MemoryChannel& bobs = *channel_;
  ASSERT_TRUE(bobs.AwaitPublished(4));
  const uint64_t slab_bytes_before = slab_bytes();
  gate_.Shut();
  EXPECT_TRUE(Returns(&gate_, [&] {
    table_->EndLease(alices);
    table_->FreeSlab(alices);
  }));
  ASSERT_TRUE(gate_.AwaitReached());

  // The producer's thread.
  for (const auto& published : bobs.published()) bobs.Release(published);
  EXPECT_TRUE(bobs.AwaitPublished(8));
  // Calls, and the attach socket's thread.
  EXPECT_TRUE(Returns(&gate_, [&] {
    EXPECT_THAT(table_->List(), SizeIs(2));
    Open(kBob);
    table_->EndSession(99);
    table_->ExpirePending();
    EXPECT_THAT(registry_->List(), SizeIs(1));
  }));
  // The slab is charged until it is free.
  EXPECT_EQ(slab_bytes(), slab_bytes_before * 3 / 2);
  gate_.Open();
  table_->AwaitEnded(kLong);
  EXPECT_EQ(slab_bytes(), slab_bytes_before);
  EXPECT_EQ(slabs_.num_revoked, 1);
}

TEST_F(SlowFreeTest, APendingFeedsMemoryHoldsUpNobody) {
  ASSERT_THAT(table_->Open(Request(), kAlice), IsOk());
  gate_.Shut();
  EXPECT_TRUE(Returns(&gate_, [&] {
    table_->EndSession(kAlice.session_id);
    EXPECT_THAT(table_->List(), SizeIs(1));
  }));
  ASSERT_TRUE(gate_.AwaitReached());
  gate_.Open();
  table_->AwaitEnded(kLong);
  EXPECT_THAT(table_->List(), SizeIs(0));
  EXPECT_EQ(slab_bytes(), 0u);
}

TEST_F(SlowFreeTest, TheDaemonsEndTakesNothingFromClients) {
  const uint64_t feed = Open(kAlice);
  table_->EndLease(feed);
  table_->AwaitEnded(kLong);
  Open(kBob);
  table_.reset();
  EXPECT_EQ(slabs_.num_revoked, 0);
  EXPECT_EQ(slabs_.num_live, 0);
  EXPECT_EQ(slab_bytes(), 0u);
}

// To free what a client maps by a legacy handle is undefined behaviour.
TEST_F(SlowFreeTest, TheDaemonsEndFreesNoLegacySlabThatAClientMayMap) {
  slabs_.said_kind = ExportKind::kCudaIpcHandle;
  const uint64_t feed = Open(kAlice);
  table_->EndLease(feed);
  table_->FreeSlab(feed);
  table_->AwaitEnded(kLong);
  EXPECT_EQ(slabs_.num_live, 0);
  Open(kBob);
  table_.reset();
  EXPECT_EQ(slabs_.num_live, 1);
  delete slabs_.last.load();
}

}  // namespace
}  // namespace datasetd
