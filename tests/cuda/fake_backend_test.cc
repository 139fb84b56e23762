#include "tests/testing/fake_backend.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cuda/kernels/program/params.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/memfd_importer.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::HasSubstr;

BackendUnderTest Fake(const std::string& name,
                      const FakeBackendOptions& options) {
  return {.name = name,
          .create = [options]() -> absl::StatusOr<std::unique_ptr<Backend>> {
            return std::make_unique<FakeBackend>(options);
          },
          .advance =
              [](Backend& backend) {
                static_cast<FakeBackend&>(backend).CompleteNext();
              }};
}

INSTANTIATE_TEST_SUITE_P(
    Fake, BackendConformanceTest,
    ::testing::Values(Fake("Notifying", {}),
                      Fake("Polled", {.needs_polling = true,
                                      .max_batches_per_launch = 32})),
    NameOfBackend);

// Batches of one int64: the index itself.
class FakeBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    backend_ = std::make_unique<FakeBackend>(FakeBackendOptions{});
    slots_ = backend_->Allocate(8 * kSlotBytes).value();
    indices_ = backend_->AllocateHost(8 * sizeof(int64_t)).value();
    for (int slot = 0; slot < 8; ++slot) {
      reinterpret_cast<int64_t*>(indices_->data())[slot] = 100 + slot;
    }
    AugmentProgram program = {};
    program.indices_offset_bytes = 0;
    program_ = backend_->Load(program).value();
    stream_ = NewStream();
    event_ = backend_->CreateEvent().value();
  }

  std::unique_ptr<Stream> NewStream() {
    return backend_->CreateStream([this] { ++num_on_done_; }).value();
  }

  absl::Status Launch(Stream& stream, int slot) {
    const BatchTask task = {
        .slot = slots_->data() + slot * kSlotBytes,
        .indices = reinterpret_cast<int64_t*>(indices_->data()) + slot,
        .num_samples = 1};
    return stream.Augment(*program_, {&task, 1});
  }

  // 100 + slot once its launch has run, else 0.
  int64_t ValueAt(int slot) const {
    int64_t value;
    std::memcpy(&value, slots_->data() + slot * kSlotBytes, sizeof(value));
    return value;
  }

  static constexpr int kSlotBytes = 256;
  std::atomic<int> num_on_done_ = 0;
  std::unique_ptr<FakeBackend> backend_;
  std::unique_ptr<DeviceMemory> slots_;
  std::unique_ptr<HostMemory> indices_;
  std::unique_ptr<LoadedProgram> program_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> event_;
};

using FakeBackendDeathTest = FakeBackendTest;

TEST_F(FakeBackendTest, LaunchRunsOnCommand) {
  EXPECT_FALSE(backend_->CompleteNext());
  ASSERT_THAT(Launch(*stream_, 1), IsOk());
  ASSERT_THAT(stream_->Record(*event_), IsOk());
  EXPECT_EQ(backend_->num_pending_launches(), 1);
  EXPECT_THAT(event_->IsDone(), IsOkAndHolds(false));
  EXPECT_EQ(ValueAt(1), 0);
  EXPECT_EQ(num_on_done_, 0);
  EXPECT_TRUE(backend_->CompleteNext());
  EXPECT_THAT(event_->IsDone(), IsOkAndHolds(true));
  EXPECT_EQ(ValueAt(1), 101);
  EXPECT_EQ(num_on_done_, 1);
  EXPECT_EQ(backend_->num_pending_launches(), 0);
  EXPECT_EQ(backend_->num_launches(), 1);
  EXPECT_FALSE(backend_->CompleteNext());
}

TEST_F(FakeBackendTest, LaunchesOfAllStreamsRunInOrderOfSubmission) {
  auto other = NewStream();
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  ASSERT_THAT(Launch(*other, 1), IsOk());
  ASSERT_THAT(Launch(*stream_, 2), IsOk());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ValueAt(i), 0);
    EXPECT_TRUE(backend_->CompleteNext());
    EXPECT_EQ(ValueAt(i), 100 + i);
  }
}

TEST_F(FakeBackendTest, CopyWaitsBehindPendingLaunch) {
  int64_t seen = -1;
  auto* bytes = reinterpret_cast<uint8_t*>(&seen);
  ASSERT_THAT(stream_->CopyToHost(bytes, slots_->data(), sizeof(seen)), IsOk());
  EXPECT_EQ(seen, 0);
  seen = -1;
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  ASSERT_THAT(stream_->CopyToHost(bytes, slots_->data(), sizeof(seen)), IsOk());
  EXPECT_EQ(seen, -1);
  EXPECT_EQ(backend_->CompleteAll(), 1);
  EXPECT_EQ(seen, 100);
}

TEST_F(FakeBackendTest, WaitingFinishesTheStreamAlone) {
  auto other = NewStream();
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  ASSERT_THAT(Launch(*other, 1), IsOk());
  EXPECT_EQ(backend_->num_waits(), 0);
  ASSERT_THAT(stream_->Synchronize(), IsOk());
  EXPECT_EQ(ValueAt(0), 100);
  EXPECT_EQ(ValueAt(1), 0);
  EXPECT_EQ(backend_->num_waits(), 1);
  ASSERT_THAT(stream_->Synchronize(), IsOk());
  EXPECT_EQ(backend_->num_waits(), 1);
  other = nullptr;
  EXPECT_EQ(ValueAt(1), 101);
  EXPECT_EQ(backend_->num_waits(), 2);
}

TEST_F(FakeBackendTest, OnDoneMayWaitForAThreadThatPolls) {
  // As a producer that polls its events under the lock that on_done takes.
  std::mutex mutex;
  auto locking = backend_->CreateStream([&] { std::lock_guard lock(mutex); });
  ASSERT_THAT(locking, IsOk());
  ASSERT_THAT(Launch(**locking, 0), IsOk());
  ASSERT_THAT((*locking)->Record(*event_), IsOk());
  std::thread tester([this] { backend_->CompleteAll(); });
  {
    std::lock_guard lock(mutex);
    while (!event_->IsDone().value()) std::this_thread::yield();
  }
  tester.join();
}

TEST_F(FakeBackendTest, FailedLaunchFailsTheDevice) {
  const auto is_failure =
      StatusIs(absl::StatusCode::kInternal, "illegal address");
  const absl::Status failure = absl::InternalError("illegal address");
  EXPECT_FALSE(backend_->FailNext(failure));
  auto done = backend_->CreateEvent().value();
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  ASSERT_THAT(stream_->Record(*done), IsOk());
  ASSERT_THAT(Launch(*stream_, 1), IsOk());
  ASSERT_THAT(stream_->Record(*event_), IsOk());
  ASSERT_TRUE(backend_->CompleteNext());
  ASSERT_TRUE(backend_->FailNext(failure));
  EXPECT_EQ(ValueAt(0), 100);
  EXPECT_EQ(ValueAt(1), 0);
  EXPECT_EQ(num_on_done_, 2);
  EXPECT_EQ(backend_->num_pending_launches(), 0);
  EXPECT_THAT(event_->IsDone(), is_failure);
  EXPECT_THAT(done->IsDone(), is_failure);
  EXPECT_THAT(Launch(*stream_, 2), is_failure);
  EXPECT_THAT(stream_->Record(*event_), is_failure);
  EXPECT_THAT(stream_->Synchronize(), is_failure);
  EXPECT_THAT(backend_->Allocate(1), is_failure);
  EXPECT_THAT(backend_->CreateEvent(), is_failure);
}

TEST_F(FakeBackendTest, KthAllocationFailsOnce) {
  const auto is_exhausted = StatusIs(absl::StatusCode::kResourceExhausted);
  backend_->FailAllocation(2);
  EXPECT_THAT(backend_->Allocate(1), IsOk());
  EXPECT_THAT(
      backend_->Allocate(4321),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("4321 bytes")));
  EXPECT_THAT(backend_->Allocate(1), IsOk());
  // Every kind of object counts.
  backend_->FailAllocation(1);
  EXPECT_THAT(backend_->AllocateExported(1, ExportKind::kMemfd), is_exhausted);
  backend_->FailAllocation(1);
  EXPECT_THAT(backend_->AllocateHost(1), is_exhausted);
  backend_->FailAllocation(1);
  EXPECT_THAT(backend_->Load({}), is_exhausted);
  backend_->FailAllocation(1);
  EXPECT_THAT(backend_->CreateStream(nullptr), is_exhausted);
  backend_->FailAllocation(1);
  EXPECT_THAT(backend_->CreateEvent(), is_exhausted);
  backend_->FailAllocation(1);
  backend_->FailAllocation(0);
  EXPECT_THAT(backend_->Allocate(1), IsOk());
}

TEST_F(FakeBackendTest, KthLaunchFailsOnce) {
  backend_->FailLaunch(2);
  EXPECT_THAT(Launch(*stream_, 0), IsOk());
  EXPECT_THAT(Launch(*stream_, 1), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(Launch(*stream_, 1), IsOk());
  EXPECT_EQ(backend_->num_launches(), 2);
  EXPECT_EQ(backend_->CompleteAll(), 2);
  EXPECT_EQ(ValueAt(1), 101);
}

TEST_F(FakeBackendTest, CountsWhatLives) {
  const int objects = backend_->num_live_objects();
  const size_t bytes = backend_->live_bytes();
  {
    auto slab = backend_->AllocateExported(1, ExportKind::kMemfd);
    ASSERT_THAT(slab, IsOk());
    auto event = backend_->CreateEvent();
    ASSERT_THAT(event, IsOk());
    EXPECT_EQ(backend_->num_live_objects(), objects + 2);
    EXPECT_EQ(backend_->live_bytes(), bytes + (size_t{2} << 20));
    EXPECT_THAT(backend_->Allocate(0),
                StatusIs(absl::StatusCode::kInvalidArgument));
    backend_->FailAllocation(1);
    EXPECT_THAT(backend_->Allocate(1),
                StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(backend_->num_live_objects(), objects + 2);
  }
  EXPECT_EQ(backend_->num_live_objects(), objects);
  EXPECT_EQ(backend_->live_bytes(), bytes);
}

TEST_F(FakeBackendTest, SlotMayBeWrittenAgainAfterCompletion) {
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  EXPECT_EQ(backend_->CompleteAll(), 1);
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
}

TEST_F(FakeBackendDeathTest, SlotWrittenByTwoPendingLaunches) {
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  auto other = NewStream();
  EXPECT_DEATH((void)Launch(*other, 0), "written by two pending launches");
}

TEST_F(FakeBackendDeathTest, SlotWrittenTwiceByOneStream) {
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  ASSERT_THAT(Launch(*stream_, 1), IsOk());
  EXPECT_DEATH((void)Launch(*stream_, 0), "written by two pending launches");
  int64_t seen = 0;
  ASSERT_THAT(stream_->CopyToHost(reinterpret_cast<uint8_t*>(&seen),
                                  slots_->data(), sizeof(seen)),
              IsOk());
  EXPECT_THAT(Launch(*stream_, 0), IsOk());
  EXPECT_EQ(backend_->CompleteAll(), 3);
}

TEST_F(FakeBackendDeathTest, ProgramDestroyedWhilePending) {
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  EXPECT_DEATH(program_ = nullptr, "program destroyed");
}

TEST_F(FakeBackendDeathTest, MemoryDestroyedWhilePending) {
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  EXPECT_DEATH(slots_ = nullptr, "memory destroyed");
  EXPECT_DEATH(indices_ = nullptr, "memory destroyed");
}

TEST_F(FakeBackendDeathTest, EventRecordedAgainWhilePending) {
  ASSERT_THAT(Launch(*stream_, 0), IsOk());
  ASSERT_THAT(stream_->Record(*event_), IsOk());
  EXPECT_DEATH((void)stream_->Record(*event_), "recorded again");
}

TEST_F(FakeBackendDeathTest, ObjectOutlivesItsBackend) {
  EXPECT_DEATH(backend_ = nullptr, "5 objects outlive");
}

}  // namespace
}  // namespace datasetd::testing

int main(int argc, char** argv) {
  // The fork of a process with threads must not go on in the child.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  return datasetd::testing::ConformanceMain(argc, argv,
                                            datasetd::testing::ImportMemfd);
}
