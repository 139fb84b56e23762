#include "client/feed/feed_core.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/connection/error_detail.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/feed_harness.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::FeedHarness;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kNow = absl::ZeroDuration();
constexpr absl::Duration kLong = absl::Seconds(30);

TEST(FeedCoreTest, HandsOutWhatIsPublished) {
  FeedHarness harness;
  ASSERT_TRUE(harness.daemon().PublishRows(3, 1));
  const auto batch = harness.core().Next(0, kNow);
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ(batch->epoch, 0u);
  EXPECT_EQ(batch->batch, 0u);
  EXPECT_EQ(batch->num_samples, 3u);
  EXPECT_EQ(batch->num_padding, 1u);
  const auto& fields = harness.core().layout().fields();
  EXPECT_EQ(harness.core().FieldData(batch->slot, fields[0])[11], 1);
  int64_t label;
  memcpy(&label, harness.core().FieldData(batch->slot, fields[1]) + 16, 8);
  EXPECT_EQ(label, 2);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  harness.Drop(*batch);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST(FeedCoreTest, SlotIsHeldUntilTheLastTensorIsGone) {
  FeedHarness harness;
  const auto batch = harness.Take();
  ASSERT_THAT(batch, IsOk());
  DLManagedTensor* const image = harness.core().MakeTensor(*batch, 0);
  DLManagedTensor* const again = harness.core().MakeTensor(*batch, 0);
  DLManagedTensor* const indices = harness.core().MakeTensor(*batch, 2);
  EXPECT_NE(image, again);
  EXPECT_EQ(image->dl_tensor.data, again->dl_tensor.data);
  EXPECT_EQ(image->dl_tensor.ndim, 4);
  EXPECT_EQ(image->dl_tensor.shape[0], 4);
  EXPECT_EQ(image->dl_tensor.strides[1], 1);
  EXPECT_EQ(image->dl_tensor.dtype.code, kDLUInt);
  EXPECT_EQ(indices->dl_tensor.dtype.bits, 64);
  harness.Drop(*batch);
  image->deleter(image);
  again->deleter(again);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  indices->deleter(indices);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST(FeedCoreTest, KeptBatchCostsDepthAndNeverOrder) {
  FeedHarness harness;
  const auto kept = harness.Take();
  ASSERT_THAT(kept, IsOk());
  for (uint64_t i = 1; i < 50; ++i) {
    const auto batch = harness.Take();
    ASSERT_THAT(batch, IsOk());
    EXPECT_EQ(batch->batch, i);
    EXPECT_NE(batch->slot, kept->slot);
    harness.Drop(*batch);
  }
  EXPECT_EQ(harness.core().FieldData(kept->slot,
                                     harness.core().layout().fields()[0])[0],
            1);
  harness.Drop(*kept);
}

TEST(FeedCoreTest, AllSlotsHeldIsAnErrorThatNamesThem) {
  FeedHarness harness;
  std::vector<DLManagedTensor*> tensors;
  for (int i = 0; i < 4; ++i) {
    const auto batch = harness.Take();
    ASSERT_THAT(batch, IsOk());
    tensors.push_back(harness.core().MakeTensor(*batch, 1));
    harness.Drop(*batch);
  }
  const auto batch = harness.core().Next(0, absl::InfiniteDuration());
  EXPECT_THAT(
      batch, StatusIs(absl::StatusCode::kFailedPrecondition,
                      AllOf(HasSubstr("all 4 slots"), HasSubstr("4 of 'label'"),
                            HasSubstr(".clone()"))));
  EXPECT_EQ(DetailOf(batch.status()), ErrorDetail::kAllSlotsHeld);
  // Dropping one cures it.
  tensors.back()->deleter(tensors.back());
  tensors.pop_back();
  const auto next = harness.Take();
  ASSERT_THAT(next, IsOk());
  harness.Drop(*next);
  for (DLManagedTensor* tensor : tensors) tensor->deleter(tensor);
}

TEST(FeedCoreTest, WaitsAndCountsTheWaiting) {
  FeedHarness harness;
  EXPECT_THAT(harness.core().Next(0, absl::Milliseconds(5)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_GE(harness.core().waited(), absl::Milliseconds(5));
  EXPECT_GE(harness.daemon().client_page()->waited_nanoseconds.load(),
            5'000'000u);
  harness.daemon().StartProducing();
  const auto batch = harness.core().Next(0, kLong);
  ASSERT_THAT(batch, IsOk());
  harness.Drop(*batch);
}

TEST(FeedCoreTest, AWaitIsCountedAsItGoes) {
  FeedHarness harness;
  const auto& waited = harness.daemon().client_page()->waited_nanoseconds;
  std::thread waiting([&] {
    const auto batch = harness.core().Next(0, kLong);
    ASSERT_THAT(batch, IsOk());
    harness.Drop(*batch);
  });
  while (waited.load() == 0) std::this_thread::yield();
  harness.daemon().StartProducing();
  waiting.join();
}

TEST(FeedCoreTest, WakesADaemonThatSleeps) {
  FeedHarness harness;
  auto batch = harness.Take();
  ASSERT_THAT(batch, IsOk());
  harness.Drop(*batch);
  EXPECT_EQ(harness.daemon().ReadEvent(), 0u);
  batch = harness.Take();
  ASSERT_THAT(batch, IsOk());
  harness.daemon().SetIdle(true);
  harness.Drop(*batch);
  EXPECT_EQ(harness.daemon().ReadEvent(), 1u);
  ASSERT_THAT(harness.core().Seek(3, 4), IsOk());
  EXPECT_EQ(harness.daemon().ReadEvent(), 1u);
}

TEST(FeedCoreTest, WakesOnceForSeveralReleasesAndBeforeItWaits) {
  FeedHarness harness({.num_slots = 16});
  std::vector<BatchInfo> batches;
  for (int i = 0; i < 8; ++i) {
    const auto batch = harness.Take();
    ASSERT_THAT(batch, IsOk());
    batches.push_back(*batch);
  }
  harness.daemon().SetIdle(true);
  // 9, 10 and 11 slots are not held then: the third is a quarter of them.
  harness.Drop(batches[0]);
  harness.Drop(batches[1]);
  EXPECT_EQ(harness.daemon().ReadEvent(), 0u);
  harness.Drop(batches[2]);
  EXPECT_EQ(harness.daemon().ReadEvent(), 1u);
  EXPECT_EQ(harness.daemon().num_held(), 5u);

  // A daemon that is awake looks for itself, so the count begins anew.
  harness.Drop(batches[3]);
  harness.daemon().SetIdle(false);
  harness.Drop(batches[4]);
  harness.daemon().SetIdle(true);
  harness.Drop(batches[5]);
  EXPECT_EQ(harness.daemon().ReadEvent(), 0u);
  // Nobody waits for what the daemon was not told of.
  EXPECT_THAT(harness.core().Next(0, kNow),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(harness.daemon().ReadEvent(), 1u);
  harness.Drop(batches[6]);
  harness.Drop(batches[7]);
}

TEST(FeedCoreTest, SeekSkipsAndReleasesWhatWasMadeAhead) {
  FeedHarness harness;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(harness.daemon().Publish());
  ASSERT_THAT(harness.core().Seek(7, 5), IsOk());
  EXPECT_THAT(harness.core().Next(0, kNow),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(harness.daemon().num_held(), 0u);
  const auto batch = harness.Take();
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ(batch->epoch, 7u);
  EXPECT_EQ(batch->batch, 5u);
  harness.Drop(*batch);
}

TEST(FeedCoreTest, SeekToWhatComesAnywayIsNone) {
  FeedHarness harness({.batches_per_epoch = 2});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(harness.daemon().Publish());
  ASSERT_THAT(harness.core().Seek(0, 0), IsOk());
  for (int i = 0; i < 2; ++i) {
    const auto batch = harness.core().Next(0, kNow);
    ASSERT_THAT(batch, IsOk());
    harness.Drop(*batch);
  }
  ASSERT_THAT(harness.core().Seek(1, 0), IsOk());
  EXPECT_EQ(harness.daemon().client_page()->seek_generation.load(), 0u);
  const auto batch = harness.core().Next(0, kNow);
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ(batch->epoch, 1u);
  harness.Drop(*batch);
  EXPECT_THAT(harness.core().Seek(0, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2")));
}

TEST(FeedCoreTest, EpochWithoutBatches) {
  FeedHarness harness({.batches_per_epoch = 0});
  EXPECT_THAT(harness.core().Seek(4, 0), IsOk());
  const auto batch = harness.core().Next(0, absl::InfiniteDuration());
  EXPECT_THAT(batch, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(DetailOf(batch.status()), ErrorDetail::kNoBatches);
}

struct GoodbyeCase {
  attach::GoodbyeCode code;
  absl::StatusCode status;
  ErrorDetail detail;
};

class FeedCoreGoodbyeTest : public ::testing::TestWithParam<GoodbyeCase> {};

TEST_P(FeedCoreGoodbyeTest, EndIsToldApart) {
  FeedHarness harness;
  ASSERT_TRUE(harness.daemon().Publish());
  harness.daemon().CloseRing();
  harness.attach().SendGoodbye(GetParam().code, "because of this");
  // A batch that was published before is still handed out.
  const auto batch = harness.core().Next(0, kLong);
  ASSERT_THAT(batch, IsOk());
  for (int i = 0; i < 2; ++i) {
    const auto ended = harness.core().Next(0, absl::InfiniteDuration());
    EXPECT_THAT(ended,
                StatusIs(GetParam().status, HasSubstr("because of this")));
    EXPECT_EQ(DetailOf(ended.status()), GetParam().detail);
  }
  harness.Drop(*batch);
}

INSTANTIATE_TEST_SUITE_P(
    Codes, FeedCoreGoodbyeTest,
    ::testing::Values(
        GoodbyeCase{attach::GoodbyeCode::kDraining, absl::StatusCode::kAborted,
                    ErrorDetail::kDaemonDraining},
        GoodbyeCase{attach::GoodbyeCode::kUnloaded,
                    absl::StatusCode::kFailedPrecondition,
                    ErrorDetail::kDatasetUnloaded},
        GoodbyeCase{attach::GoodbyeCode::kEvicted, absl::StatusCode::kAborted,
                    ErrorDetail::kFeedEvicted},
        GoodbyeCase{attach::GoodbyeCode::kFailed, absl::StatusCode::kInternal,
                    ErrorDetail::kDeviceFailed},
        GoodbyeCase{attach::GoodbyeCode::kFeedFailed,
                    absl::StatusCode::kInternal, ErrorDetail::kFeedFailed}),
    [](const auto& info) {
      return absl::StrCat("Code", static_cast<uint32_t>(info.param.code));
    });

TEST(FeedCoreTest, DaemonThatDiesWhileTheClientWaits) {
  FeedHarness harness;
  std::thread killer([&harness] {
    // The client waits: it says so in its page.
    while (harness.daemon().client_page()->waiting.load() == 0) {
      std::this_thread::yield();
    }
    harness.attach().Die();
  });
  const absl::Time start = absl::Now();
  const auto batch = harness.core().Next(0, absl::InfiniteDuration());
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_THAT(batch,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("gone")));
  EXPECT_EQ(DetailOf(batch.status()), ErrorDetail::kDaemonGone);
  killer.join();
}

TEST(FeedCoreTest, RingClosedWithoutAWord) {
  FeedHarness harness;
  harness.daemon().CloseRing();
  EXPECT_THAT(harness.core().Next(0, kLong),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("GOODBYE")));
}

TEST(FeedCoreTest, GarbageOnTheLease) {
  FeedHarness harness;
  harness.attach().SendGarbageOnLeases();
  EXPECT_THAT(harness.core().Next(0, kLong),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("without datasetd's mark")));
}

// The number that was checked is used: this one would be divided by.
TEST(FeedCoreTest, ADaemonThatChangesTheNumberOfSlotsLater) {
  FeedHarness harness;
  for (const uint32_t num_slots : {0u, 1u << 30}) {
    harness.daemon().daemon_page()->num_slots = num_slots;
    for (int i = 0; i < 3; ++i) {
      const auto batch = harness.Take();
      ASSERT_THAT(batch, IsOk());
      harness.Drop(*batch);
    }
  }
}

TEST(FeedCoreTest, SlotOutsideTheFeed) {
  FeedHarness harness;
  harness.daemon().PublishBadSlot();
  EXPECT_THAT(harness.core().Next(0, kLong),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("slot 4 of 4")));
}

struct BadDescriptorCase {
  const char* name;
  ring::SlotDescriptor descriptor;
  const char* message;
};

class FeedCoreBadDescriptorTest
    : public ::testing::TestWithParam<BadDescriptorCase> {};

TEST_P(FeedCoreBadDescriptorTest, IsAProtocolError) {
  FeedHarness harness;
  harness.daemon().PublishRaw(0, GetParam().descriptor);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        harness.core().Next(0, kLong),
        StatusIs(absl::StatusCode::kInternal, HasSubstr(GetParam().message)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FeedCoreBadDescriptorTest,
    ::testing::Values(
        BadDescriptorCase{"NoSamples", {.sequence = 1}, "0 samples"},
        BadDescriptorCase{
            "TooManySamples", {.sequence = 1, .num_samples = 5}, "5 samples"},
        BadDescriptorCase{"MorePaddingThanSamples",
                          {.sequence = 1, .num_samples = 2, .num_padding = 3},
                          "3 padding"},
        BadDescriptorCase{"FutureGeneration",
                          {.sequence = 1, .generation = 1, .num_samples = 4},
                          "generation 1"},
        BadDescriptorCase{
            "AnotherPosition",
            {.sequence = 1, .epoch = 0, .batch = 9, .num_samples = 4},
            "epoch 0 batch 0 was due"}),
    [](const auto& info) { return info.param.name; });

TEST(FeedCoreTest, PublishedWhileHeld) {
  FeedHarness harness;
  const auto batch = harness.Take();
  ASSERT_THAT(batch, IsOk());
  harness.daemon().PublishRaw(batch->slot,
                              {.sequence = 2, .batch = 1, .num_samples = 4});
  EXPECT_THAT(harness.core().Next(0, kLong),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("is held")));
  harness.Drop(*batch);
}

TEST(FeedCoreTest, DetachesWhenTheLastTensorIsGone) {
  FeedHarness harness;
  const auto batch = harness.Take();
  ASSERT_THAT(batch, IsOk());
  DLManagedTensor* const tensor = harness.core().MakeTensor(*batch, 0);
  harness.Drop(*batch);
  harness.Close();
  EXPECT_EQ(static_cast<char*>(tensor->dl_tensor.data)[0], 1);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  tensor->deleter(tensor);
  EXPECT_TRUE(harness.attach().AwaitDetached(1));
  EXPECT_TRUE(harness.attach().AwaitNoLeases());
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST(FeedCoreTest, BatchesAreReleasedOnOtherThreads) {
  FeedHarness harness({.num_slots = 6, .batches_per_epoch = 100});
  harness.daemon().StartProducing();
  constexpr int kThreads = 4;
  constexpr int kBatches = 4000;
  // A slot of the hand-over each: null is empty.
  std::array<std::atomic<DLManagedTensor*>, kThreads> boxes = {};
  std::atomic<bool> is_done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&boxes, &is_done, i] {
      while (!is_done.load() || boxes[i].load() != nullptr) {
        DLManagedTensor* const tensor = boxes[i].exchange(nullptr);
        if (tensor == nullptr) {
          std::this_thread::yield();
        } else {
          tensor->deleter(tensor);
        }
      }
    });
  }
  for (int i = 0; i < kBatches; ++i) {
    const auto batch = harness.core().Next(0, kLong);
    ASSERT_THAT(batch, IsOk());
    EXPECT_EQ(batch->epoch * 100 + batch->batch, static_cast<uint64_t>(i));
    DLManagedTensor* const tensor = harness.core().MakeTensor(*batch, 0);
    EXPECT_EQ(static_cast<uint8_t*>(tensor->dl_tensor.data)[0],
              static_cast<uint8_t>(batch->sequence));
    DLManagedTensor* empty = nullptr;
    while (!boxes[i % kThreads].compare_exchange_weak(empty, tensor)) {
      empty = nullptr;
      std::this_thread::yield();
    }
    harness.Drop(*batch);
  }
  is_done.store(true);
  for (std::thread& thread : threads) thread.join();
  harness.daemon().StopProducing();
  harness.Close();
  EXPECT_TRUE(harness.attach().AwaitDetached(1));
}

TEST(FeedCoreTest, ChildOfForkHasNothing) {
  FeedHarness harness;
  const auto batch = harness.Take();
  ASSERT_THAT(batch, IsOk());
  DLManagedTensor* const tensor = harness.core().MakeTensor(*batch, 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // The slab can be read; nothing can be taken or given back.
    int failures = 0;
    if (static_cast<char*>(tensor->dl_tensor.data)[0] != 1) failures |= 1;
    const auto next = harness.core().Next(0, kNow);
    if (DetailOf(next.status()) != ErrorDetail::kForked) failures |= 2;
    if (DetailOf(harness.core().Seek(1, 0)) != ErrorDetail::kForked) {
      failures |= 4;
    }
    tensor->deleter(tensor);
    harness.Drop(*batch);
    harness.Close();
    _exit(failures);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(harness.daemon().num_held(), 1u);
  EXPECT_EQ(static_cast<char*>(tensor->dl_tensor.data)[0], 1);
  // The parent goes on.
  const auto next = harness.Take();
  ASSERT_THAT(next, IsOk());
  harness.Drop(*next);
  harness.Drop(*batch);
  tensor->deleter(tensor);
  EXPECT_EQ(harness.daemon().num_held(), 0u);
}

TEST(FeedCoreTest, LeaseEndsWithTheParentAlthoughAChildLives) {
  testing::TempDir directory(testing::TempDir::Place::kShortPath);
  testing::FakeAttachServer server(directory.File("datasetd.sock"));
  int release[2];
  ASSERT_EQ(pipe(release), 0);
  // The client is a process of its own, so that it can end.
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    auto socket = AttachSocket::Connect(directory.File("datasetd.sock"),
                                        {.timeout = absl::Seconds(10)});
    if (!socket.ok()) _exit(1);
    if (!socket
             ->Send(attach::Hello{MakeHeader(attach::MessageType::kHello),
                                  getpid()})
             .ok() ||
        !socket->Receive({.timeout = absl::Seconds(10)}).ok()) {
      _exit(2);
    }
    const pid_t child = fork();
    if (child == 0) {
      char byte;
      (void)!read(release[0], &byte, 1);
      _exit(0);
    }
    _exit(child > 0 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (server.num_sessions() > 0 && absl::Now() < deadline) {
    std::this_thread::yield();
  }
  EXPECT_EQ(server.num_sessions(), 0);
  ASSERT_EQ(write(release[1], "x", 1), 1);
  close(release[0]);
  close(release[1]);
}

}  // namespace
}  // namespace datasetd::client
