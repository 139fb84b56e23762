#include "server/feed/feed.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cuda/kernels/math/permutation.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/dataset/memory_budget.h"
#include "server/feed/scratch_pool.h"
#include "server/order/weight_table.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fault_plan.h"
#include "tests/testing/faulty_backend.h"
#include "tests/testing/feed_fixture.h"
#include "tests/testing/long_form.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::BatchBytes;
using ::datasetd::testing::FaultPlan;
using ::datasetd::testing::FaultyBackend;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::IsOkAndHolds;
using ::datasetd::testing::MakeTestFeed;
using ::datasetd::testing::MemoryChannel;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TestFeed;
using ::datasetd::testing::TestFeedOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class FeedTest : public ::testing::Test {
 protected:
  void LaunchAll(Feed& feed) {
    while (feed.CanLaunch()) ASSERT_THAT(feed.Launch(1), IsOk());
  }
  // Launches, completes and publishes until every slot is out, or there is no
  // more.
  void Fill(Feed& feed) {
    LaunchAll(feed);
    backend_.CompleteAll();
    ASSERT_THAT(feed.Collect(), IsOk());
  }

  FakeBackend backend_{{.needs_polling = true,
                        .max_batches_per_launch = 32,
                        .max_launches_in_flight = 64}};
};

TEST_F(FeedTest, PublishesOnlyWhatHasCompletedAndInOrder) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  LaunchAll(*made.feed);
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(0));
  EXPECT_THAT(made.channel->published(), SizeIs(0));

  EXPECT_TRUE(backend_.CompleteNext());
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  const auto first = made.channel->published();
  ASSERT_THAT(first, SizeIs(1));
  EXPECT_EQ(first[0].batch.sequence, 1);
  EXPECT_THAT(BatchBytes(*made.feed, first[0]), ElementsAre(0, 1, 2, 3));

  backend_.CompleteAll();
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(2));
  const auto all = made.channel->published();
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_THAT(BatchBytes(*made.feed, all[1]), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(BatchBytes(*made.feed, all[2]), ElementsAre(8, 9));
  EXPECT_EQ(all[2].batch.num_samples, 2);
  EXPECT_EQ(all[2].batch.batch, 2);
}

TEST_F(FeedTest, EpochsRollOver) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  for (int round = 0; round < 4; ++round) {
    Fill(*made.feed);
    for (const auto& published : made.channel->published()) {
      made.channel->Release(published);
    }
    made.feed->Scan(0);
  }
  const auto all = made.channel->published();
  ASSERT_THAT(all, SizeIs(12));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].batch.sequence, i + 1);
    EXPECT_EQ(all[i].batch.epoch, i / 3);
    EXPECT_EQ(all[i].batch.batch, i % 3);
  }
  EXPECT_EQ(made.feed->stats().num_batches.load(), 12);
  EXPECT_EQ(made.feed->stats().num_samples.load(), 40);
}

TEST_F(FeedTest, OneLaunchFillsManyFreeSlots) {
  const TestFeed made = MakeTestFeed(&backend_, {.num_slots = 6});
  // A client that has none waits for one only.
  EXPECT_THAT(made.feed->Launch(4), IsOk());
  backend_.CompleteAll();
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  EXPECT_THAT(made.channel->published(), SizeIs(1));
  EXPECT_THAT(made.feed->Launch(2), IsOk());
  EXPECT_TRUE(made.feed->CanLaunch());
  EXPECT_THAT(made.feed->Launch(32), IsOk());
  EXPECT_FALSE(made.feed->CanLaunch());
  EXPECT_EQ(backend_.num_launches(), 3);
  backend_.CompleteAll();
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(2));
  const auto all = made.channel->published();
  ASSERT_THAT(all, SizeIs(6));
  EXPECT_THAT(BatchBytes(*made.feed, all[3]), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(all[3].batch.epoch, 1);
}

// On a GPU a launch takes the trainers' turn.
class GatheringTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kSlots = 12;
  static constexpr uint64_t kHour = 3600 * uint64_t{1'000'000'000};

  // All slots are published.
  GatheringTest() {
    EXPECT_THAT(feed().Launch(32), IsOk());
    backend_.CompleteAll();
    EXPECT_THAT(feed().Collect(), IsOkAndHolds(1));
    EXPECT_THAT(feed().Launch(32), IsOk());
    backend_.CompleteAll();
    EXPECT_THAT(feed().Collect(), IsOkAndHolds(1));
    EXPECT_THAT(made_.channel->published(), SizeIs(kSlots));
  }

  Feed& feed() { return *made_.feed; }
  MemoryChannel& client() { return *made_.channel; }
  void Release(size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) {
      client().Release(client().published()[i]);
    }
  }
  void Request(size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) {
      client().Request(client().published()[i]);
    }
  }

  FakeBackend backend_{{.needs_polling = true,
                        .max_batches_per_launch = 32,
                        .max_launches_in_flight = 64,
                        .is_host = false}};
  const TestFeed made_ = MakeTestFeed(&backend_, {.num_slots = kSlots});
  // Before all launches, so that none is long ago however slow the test is.
  const uint64_t now_ = MonotonicNanoseconds();
};

TEST_F(GatheringTest, AThirdOfTheSlotsIsFilledByOneLaunch) {
  Release(0, 3);
  EXPECT_TRUE(feed().Scan(now_));
  EXPECT_FALSE(feed().CanLaunch());
  Release(3, 4);
  EXPECT_TRUE(feed().Scan(now_));
  ASSERT_TRUE(feed().CanLaunch());
  EXPECT_THAT(feed().Launch(32), IsOk());
  EXPECT_EQ(backend_.num_launches(), 3);
  backend_.CompleteAll();
  EXPECT_THAT(feed().Collect(), IsOkAndHolds(1));
  EXPECT_THAT(client().published(), SizeIs(kSlots + 4));
}

// As where a launch is limited to fewer batches.
TEST_F(GatheringTest, SeveralLaunchesFillWhatWasGathered) {
  Release(0, 4);
  feed().Scan(now_);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(feed().CanLaunch());
    ASSERT_THAT(feed().Launch(1), IsOk());
    feed().Scan(now_);
  }
  Release(4, 5);
  feed().Scan(now_);
  EXPECT_FALSE(feed().CanLaunch());
}

TEST_F(GatheringTest, AClientThatWaitsGetsWhatIsFree) {
  Release(0, 1);
  feed().Scan(now_);
  EXPECT_FALSE(feed().CanLaunch());
  client().SetWaiting(true);
  // So that the producer does not sleep.
  EXPECT_TRUE(feed().Scan(now_));
  EXPECT_TRUE(feed().CanLaunch());
}

// Work for a quarter of the slots, which are three, is enough.
TEST_F(GatheringTest, AClientWhoseDeviceHasWorkWaitsForMore) {
  Release(0, 1);
  Request(1, 4);
  client().SetWaiting(true);
  feed().Scan(now_);
  EXPECT_FALSE(feed().CanLaunch());
  Release(1, 2);
  feed().Scan(now_);
  EXPECT_TRUE(feed().CanLaunch());
}

TEST_F(GatheringTest, IsLimitedInTime) {
  Release(0, 1);
  Request(1, 12);
  client().SetWaiting(true);
  feed().Scan(now_);
  EXPECT_FALSE(feed().CanLaunch());
  EXPECT_TRUE(feed().Scan(now_ + kHour));
  EXPECT_TRUE(feed().CanLaunch());
}

// A slow client with batches in most slots waits for nothing.
TEST_F(GatheringTest, TheTimeIsLongerWhileTheClientHasBatches) {
  Release(0, 1);
  feed().Scan(now_);
  ASSERT_TRUE(feed().gathers_until().has_value());
  const uint64_t stocked = *feed().gathers_until();
  // Its device has all but three.
  Request(1, 9);
  feed().Scan(now_);
  ASSERT_TRUE(feed().gathers_until().has_value());
  const uint64_t until = *feed().gathers_until();
  EXPECT_EQ(stocked - until, 900'000'000u);
  EXPECT_FALSE(feed().Scan(until - 1));
  EXPECT_FALSE(feed().CanLaunch());
  EXPECT_TRUE(feed().Scan(until));
  EXPECT_TRUE(feed().CanLaunch());
}

// Its program and its slab may go at once.
TEST_F(FeedTest, ARefusedLaunchLeavesNoWork) {
  int num_launches = 0;
  // MakeTestFeed copies the samples and waits. Then the indices are copied, the
  // kernel is launched, and its event is recorded.
  for (int64_t k = 3; k <= 5; ++k) {
    auto device = std::make_unique<FakeBackend>(
        FakeBackendOptions{.needs_polling = true, .is_host = false});
    const FakeBackend* const fake = device.get();
    FaultPlan plan(datasetd::testing::kFaultDevice, k);
    std::atomic<int> num_live = 0;
    FaultyBackend backend(std::move(device), &plan, &num_live);
    const TestFeed made = MakeTestFeed(&backend, {});
    EXPECT_THAT(made.feed->Launch(1), StatusIs(absl::StatusCode::kInternal,
                                               HasSubstr("injected fault")));
    EXPECT_EQ(fake->num_pending_launches(), 0);
    num_launches += fake->num_launches();
  }
  EXPECT_EQ(num_launches, 1);
}

TEST_F(FeedTest, OnTheHostNothingIsGathered) {
  const TestFeed made = MakeTestFeed(&backend_, {.num_slots = 12});
  Fill(*made.feed);
  Fill(*made.feed);
  made.channel->Release(made.channel->published()[0]);
  made.feed->Scan(MonotonicNanoseconds());
  EXPECT_TRUE(made.feed->CanLaunch());
}

// On a device that has memory of its own, a launch reads indices that one copy
// brought there.
class IndexCopyTest : public ::testing::Test {
 protected:
  FakeBackend backend_{{.needs_polling = true,
                        .max_batches_per_launch = 32,
                        .max_launches_in_flight = 64,
                        .is_host = false}};
};

TEST_F(IndexCopyTest, OneCopyALaunchBeforeIt) {
  const TestFeed made = MakeTestFeed(&backend_, {.num_slots = 6});
  EXPECT_EQ(backend_.num_copies(), 1);  // the samples
  ASSERT_THAT(made.feed->Launch(4), IsOk());
  EXPECT_EQ(backend_.num_copies(), 2);
  backend_.CompleteAll();
  ASSERT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  // Three batches: the short one of this epoch and two of the next.
  ASSERT_THAT(made.feed->Launch(3), IsOk());
  EXPECT_EQ(backend_.num_copies(), 3);
  backend_.CompleteAll();
  ASSERT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  const auto all = made.channel->published();
  ASSERT_THAT(all, SizeIs(4));
  EXPECT_THAT(BatchBytes(*made.feed, all[1]), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(BatchBytes(*made.feed, all[2]), ElementsAre(8, 9));
  EXPECT_THAT(BatchBytes(*made.feed, all[3]), ElementsAre(0, 1, 2, 3));
}

// Copies run late, when the launch before has ended: whatever was written over
// their source by then would show. Launches of all sizes end in all places.
TEST_F(IndexCopyTest, IndicesStayUntilTheirLaunchHasEnded) {
  constexpr int kNumSamples = 250;
  const TestFeed made = MakeTestFeed(
      &backend_, {.num_samples = kNumSamples, .batch_size = 1, .num_slots = 5});
  Feed& feed = *made.feed;
  uint32_t state = 1;
  const auto draw = [&state](uint32_t end) {
    state = state * 1664525 + 1013904223;
    return static_cast<int>((state >> 16) % end);
  };
  size_t num_released = 0;
  // More than an epoch; in the long form, four.
  const int num_rounds = testing::IsFull() ? 3000 : 1000;
  for (int round = 0; round < num_rounds; ++round) {
    if (feed.CanLaunch() && draw(3) > 0) {
      ASSERT_THAT(feed.Launch(1 + draw(5)), IsOk());
    }
    if (draw(2) == 0) backend_.CompleteNext();
    ASSERT_THAT(feed.Collect(), IsOk());
    const auto all = made.channel->published();
    if (num_released < all.size() && draw(4) > 0) {
      ASSERT_THAT(BatchBytes(feed, all[num_released]),
                  ElementsAre(num_released % kNumSamples))
          << "batch " << num_released;
      made.channel->Release(all[num_released++]);
      feed.Scan(0);
    }
  }
  EXPECT_GT(num_released, num_rounds / 3);
}

TEST_F(IndexCopyTest, PartsOfALaunchShareOneCopy) {
  FakeBackend backend(
      {.needs_polling = true, .max_launch_operations = 20, .is_host = false});
  const TestFeed made = MakeTestFeed(&backend, {.sample_operations = 10});
  const int before = backend.num_copies();
  ASSERT_THAT(made.feed->Launch(1), IsOk());
  backend.CompleteAll();
  ASSERT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  ASSERT_THAT(made.feed->Launch(1), IsOk());
  backend.CompleteAll();
  ASSERT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  EXPECT_EQ(backend.num_copies() - before, 1);
  ASSERT_THAT(made.channel->published(), SizeIs(1));
  EXPECT_THAT(BatchBytes(*made.feed, made.channel->published()[0]),
              ElementsAre(0, 1, 2, 3));
}

TEST_F(FeedTest, OnTheHostNothingIsCopied) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  const int before = backend_.num_copies();
  Fill(*made.feed);
  EXPECT_EQ(backend_.num_copies(), before);
  EXPECT_THAT(made.channel->published(), SizeIs(3));
}

// While a launch computes its order, all other feeds of the device wait. The
// parameter: whether the device is the host.
class OrderCostTest : public ::testing::TestWithParam<bool> {
 protected:
  // With kRows rows a batch, the first has more than a launch takes.
  static constexpr int64_t kNumSamples = 90'000;
  static constexpr int64_t kRows = 60'000;

  TestFeed MakeLargeFeed() {
    return MakeTestFeed(
        &backend_,
        {.num_samples = kNumSamples, .batch_size = kRows, .shuffle = true});
  }
  // Completes what was launched.
  void Collect(Feed& feed) {
    backend_.CompleteAll();
    ASSERT_THAT(feed.Collect(), IsOkAndHolds(1));
  }
  static std::vector<uint8_t> ExpectedBytes(uint64_t epoch, int64_t first_row,
                                            int64_t num_rows) {
    const KeyedPermutation order(0, epoch, kNumSamples);
    std::vector<uint8_t> bytes;
    for (int64_t row = first_row; row < first_row + num_rows; ++row) {
      bytes.push_back(static_cast<uint8_t>(order(row)));
    }
    return bytes;
  }

  FakeBackend backend_{{.needs_polling = true,
                        .max_batches_per_launch = 32,
                        .max_launches_in_flight = 64,
                        .is_host = GetParam()}};
};

TEST_P(OrderCostTest, ALaunchMakesOneLargeTableAtMost) {
  // An epoch is a batch of one sample.
  const TestFeed made = MakeTestFeed(&backend_, {.num_samples = 65536,
                                                 .batch_size = 1,
                                                 .num_slots = 6,
                                                 .shuffle = true,
                                                 .world_size = 65536});
  const FeedStats& stats = made.feed->stats();
  for (uint64_t num_tables = 1; num_tables <= 6; ++num_tables) {
    ASSERT_TRUE(made.feed->CanLaunch());
    ASSERT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
    EXPECT_EQ(stats.next_epoch.load(), num_tables);
    Collect(*made.feed);
  }
  EXPECT_FALSE(made.feed->CanLaunch());
}

TEST_P(OrderCostTest, TheOrderThatIsNeededNextIsPrepared) {
  // As above: the next batch is an epoch that has not begun.
  const TestFeed made = MakeTestFeed(&backend_, {.num_samples = 65536,
                                                 .batch_size = 1,
                                                 .num_slots = 6,
                                                 .shuffle = true,
                                                 .world_size = 65536});
  ASSERT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
  Collect(*made.feed);
  EXPECT_EQ(made.feed->stats().next_epoch.load(), 1);
  EXPECT_TRUE(made.feed->PrepareNextEpoch());
  EXPECT_FALSE(made.feed->PrepareNextEpoch());
  // The launch has time for the table of one more epoch.
  ASSERT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
  EXPECT_EQ(made.feed->stats().next_epoch.load(), 3);
  Collect(*made.feed);
}

TEST_P(OrderCostTest, ALaunchMakesManySmallTables) {
  const TestFeed made = MakeTestFeed(
      &backend_,
      {.batch_size = 1, .num_slots = 6, .shuffle = true, .world_size = 10});
  // A client without a batch gets one alone.
  ASSERT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
  Collect(*made.feed);
  ASSERT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
  EXPECT_EQ(made.feed->stats().next_epoch.load(), 6);
  Collect(*made.feed);
}

TEST_P(OrderCostTest, TheOrderOfALargeBatchIsTakenInParts) {
  const TestFeed made = MakeLargeFeed();
  Feed& feed = *made.feed;
  for (uint64_t epoch = 0; epoch < 4; ++epoch) {
    ASSERT_THAT(feed.Launch(1), IsOkAndHolds(false));
    EXPECT_TRUE(feed.has_partial_order());
    EXPECT_TRUE(feed.CanLaunch());
    EXPECT_TRUE(feed.is_quiescent());
    ASSERT_THAT(feed.Launch(1), IsOkAndHolds(true));
    EXPECT_FALSE(feed.has_partial_order());
    Collect(feed);
    ASSERT_THAT(feed.Launch(1), IsOkAndHolds(true));
    Collect(feed);
    const auto all = made.channel->published();
    ASSERT_THAT(all, SizeIs(2 * epoch + 2));
    EXPECT_TRUE(BatchBytes(feed, all[2 * epoch]) ==
                ExpectedBytes(epoch, 0, kRows));
    EXPECT_TRUE(BatchBytes(feed, all[2 * epoch + 1]) ==
                ExpectedBytes(epoch, kRows, kNumSamples - kRows));
    for (const auto& published : all) made.channel->Release(published);
    feed.Scan(0);
  }
}

TEST_P(OrderCostTest, ASlotThatIsFreedMeanwhileIsNotTheBatchs) {
  const TestFeed made = MakeLargeFeed();
  Feed& feed = *made.feed;
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(false));
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(true));
  Collect(feed);
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(true));
  Collect(feed);
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(false));  // for the third slot
  made.channel->Release(made.channel->published()[0]);
  feed.Scan(0);
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(true));
  Collect(feed);
  const auto all = made.channel->published();
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_NE(all[2].slot, all[0].slot);
  EXPECT_TRUE(BatchBytes(feed, all[2]) == ExpectedBytes(1, 0, kRows));
}

TEST_P(OrderCostTest, ASeekDropsAPartOfABatch) {
  const TestFeed made = MakeLargeFeed();
  Feed& feed = *made.feed;
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(false));
  made.channel->Seek({.generation = 1, .epoch = 7, .batch = 1});
  EXPECT_TRUE(feed.Scan(0));
  EXPECT_FALSE(feed.has_partial_order());
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(true));
  Collect(feed);
  const auto all = made.channel->published();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].batch.generation, 1);
  EXPECT_EQ(all[0].batch.epoch, 7);
  EXPECT_TRUE(BatchBytes(feed, all[0]) ==
              ExpectedBytes(7, kRows, kNumSamples - kRows));
}

// The kernel is advised of each sample, also of those that a client names.
TEST_P(OrderCostTest, SamplesOfAMappedFileAreAdvisedInParts) {
  constexpr int64_t kMappedRows = 1500;
  ClientOrder::Options options;
  options.num_samples = kMappedRows;
  options.batch_size = kMappedRows;
  options.capacity = 4;
  const auto order = std::make_shared<ClientOrder>(options);
  const TestFeed made =
      MakeTestFeed(&backend_, {.num_samples = kMappedRows,
                               .batch_size = kMappedRows,
                               .order = order,
                               .file = testing::MakeMappedBytes(kMappedRows)});
  Feed& feed = *made.feed;
  const auto send = [&](FeedPosition start, uint64_t generation) {
    std::vector<int64_t> indices(kMappedRows);
    std::iota(indices.rbegin(), indices.rend(), 0);
    const std::vector<uint32_t> sizes = {kMappedRows};
    ASSERT_THAT(order->Append({.generation = generation,
                               .start = start,
                               .batch_sizes = sizes,
                               .indices = indices}),
                IsOk());
  };
  send({0, 0}, 0);
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(false));
  EXPECT_TRUE(feed.has_partial_order());
  EXPECT_FALSE(order->HasNext());
  // A block of a new generation is a seek.
  send({5, 0}, 1);
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(false));
  EXPECT_FALSE(order->HasNext());
  ASSERT_TRUE(feed.CanLaunch());
  ASSERT_THAT(feed.Launch(1), IsOkAndHolds(true));
  EXPECT_FALSE(feed.CanLaunch());
  Collect(feed);
  const auto all = made.channel->published();
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].batch.generation, 1);
  EXPECT_EQ(all[0].batch.epoch, 5);
  const std::vector<uint8_t> bytes = BatchBytes(feed, all[0]);
  for (int64_t row = 0; row < kMappedRows; ++row) {
    ASSERT_EQ(bytes[row], static_cast<uint8_t>(kMappedRows - 1 - row));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, OrderCostTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Host" : "Device";
                         });

class CutFeedTest : public ::testing::Test {
 protected:
  // Launches take two samples; batches have four, the third of an epoch two.
  FakeBackend backend_{{.needs_polling = true,
                        .max_batches_per_launch = 32,
                        .max_launch_operations = 20}};
  const TestFeedOptions options_ = {.sample_operations = 10, .num_slots = 3};
};

TEST_F(CutFeedTest, ALaunchOfTooMuchWorkIsCutAndPublishedAsAWhole) {
  const TestFeed made = MakeTestFeed(&backend_, options_);
  Feed& feed = *made.feed;
  for (const size_t num_published : {1u, 2u}) {
    EXPECT_THAT(feed.Launch(32), IsOkAndHolds(true));
    EXPECT_FALSE(feed.CanLaunch());  // one part at a time
    EXPECT_THAT(feed.Collect(), IsOkAndHolds(0));
    EXPECT_TRUE(backend_.CompleteNext());
    EXPECT_THAT(feed.Collect(), IsOkAndHolds(1));
    EXPECT_THAT(made.channel->published(), SizeIs(num_published - 1));
    EXPECT_FALSE(feed.is_quiescent());
    ASSERT_TRUE(feed.CanLaunch());
    EXPECT_THAT(feed.Launch(32), IsOkAndHolds(true));
    EXPECT_TRUE(backend_.CompleteNext());
    EXPECT_THAT(feed.Collect(), IsOkAndHolds(1));
    EXPECT_TRUE(feed.is_quiescent());
    ASSERT_THAT(made.channel->published(), SizeIs(num_published));
  }
  EXPECT_THAT(BatchBytes(feed, made.channel->published()[1]),
              ElementsAre(4, 5, 6, 7));
  // The short batch fits.
  EXPECT_THAT(feed.Launch(32), IsOkAndHolds(true));
  EXPECT_TRUE(backend_.CompleteNext());
  EXPECT_THAT(feed.Collect(), IsOkAndHolds(1));
  ASSERT_THAT(made.channel->published(), SizeIs(3));
  EXPECT_THAT(BatchBytes(feed, made.channel->published()[2]),
              ElementsAre(8, 9));
}

// A team works on one sample, beside the others.
TEST(ChainFeedTest, EveryTeamGetsASampleOfALaunch) {
  FakeBackend backend({.needs_polling = true,
                       .max_batches_per_launch = 32,
                       .max_launch_operations = 20,
                       .max_teams = 3,
                       .is_host = false});
  MemoryBudget budget(uint64_t{1} << 30);
  const auto pool = ScratchPool::Create(&backend, &budget, nullptr);
  ASSERT_THAT(pool, IsOk());
  auto lease = (*pool)->Take(1000, 0, "scratch", {});
  ASSERT_THAT(lease, IsOk());
  ASSERT_EQ(lease->num_teams(), 3);
  const TestFeed made = MakeTestFeed(
      &backend,
      {.sample_operations = 10, .batch_size = 8, .scratch = *std::move(lease)});
  const int before = backend.num_launches();
  const uint8_t* const slot = made.feed->slab().data();
  ASSERT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
  EXPECT_TRUE(backend.CompleteNext());
  EXPECT_THAT(std::vector<uint8_t>(slot, slot + 8),
              ElementsAre(0, 1, 2, 0, 0, 0, 0, 0));
  for (int part = 1; part < 3; ++part) {
    ASSERT_THAT(made.feed->Collect(), IsOkAndHolds(1));
    ASSERT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
    EXPECT_TRUE(backend.CompleteNext());
  }
  ASSERT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  EXPECT_EQ(backend.num_launches() - before, 3);
  ASSERT_THAT(made.channel->published(), SizeIs(1));
  EXPECT_THAT(BatchBytes(*made.feed, made.channel->published()[0]),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST_F(CutFeedTest, AStopBetweenPartsEndsTheLaunch) {
  const TestFeed made = MakeTestFeed(&backend_, options_);
  EXPECT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
  EXPECT_TRUE(backend_.CompleteNext());
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  made.feed->Stop();
  EXPECT_FALSE(made.feed->CanLaunch());
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(0));
  EXPECT_TRUE(made.feed->is_quiescent());
  EXPECT_THAT(made.channel->published(), SizeIs(0));
}

TEST_F(CutFeedTest, AStopWhileAPartRunsWaitsForThatPart) {
  const TestFeed made = MakeTestFeed(&backend_, options_);
  EXPECT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
  made.feed->Stop();
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(0));
  EXPECT_FALSE(made.feed->is_quiescent());
  EXPECT_TRUE(backend_.CompleteNext());
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  EXPECT_TRUE(made.feed->is_quiescent());
  EXPECT_THAT(made.channel->published(), SizeIs(0));
}

TEST_F(CutFeedTest, ASeekDropsTheRestOfALaunch) {
  const TestFeed made = MakeTestFeed(&backend_, options_);
  EXPECT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
  EXPECT_TRUE(backend_.CompleteNext());
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  made.channel->Seek({.generation = 1, .epoch = 0, .batch = 2});
  EXPECT_TRUE(made.feed->Scan(0));
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(0));
  EXPECT_TRUE(made.feed->is_quiescent());
  EXPECT_THAT(made.feed->Launch(32), IsOkAndHolds(true));
  EXPECT_TRUE(backend_.CompleteNext());
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  ASSERT_THAT(made.channel->published(), SizeIs(1));
  EXPECT_THAT(BatchBytes(*made.feed, made.channel->published()[0]),
              ElementsAre(8, 9));
}

TEST_F(FeedTest, OnlyTheSequenceThatIsInASlotFreesIt) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  Fill(*made.feed);
  const auto all = made.channel->published();
  made.channel->WriteDone(all[0].slot, all[0].batch.sequence + 1);
  made.channel->WriteDone(all[1].slot, 0xFFFFFFFFFFFFFFFF);
  EXPECT_FALSE(made.feed->Scan(0));
  EXPECT_FALSE(made.feed->CanLaunch());
  EXPECT_EQ(made.feed->stats().num_ignored_releases.load(), 2);
  // The same nonsense is counted once.
  EXPECT_FALSE(made.feed->Scan(0));
  EXPECT_EQ(made.feed->stats().num_ignored_releases.load(), 2);

  made.channel->Release(all[1]);
  EXPECT_TRUE(made.feed->Scan(0));
  EXPECT_TRUE(made.feed->CanLaunch());
  Fill(*made.feed);
  // A release said before the slot was published again frees nothing.
  EXPECT_FALSE(made.feed->Scan(0));
  EXPECT_EQ(made.channel->published().back().slot, all[1].slot);
  EXPECT_EQ(made.channel->published().back().batch.sequence, 4);
}

TEST_F(FeedTest, AKeptBatchCostsDepthAndNoOrder) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  Fill(*made.feed);
  const MemoryChannel::Published kept = made.channel->published()[0];
  for (int round = 0; round < 50; ++round) {
    for (const auto& published : made.channel->published()) {
      if (published.batch.sequence != kept.batch.sequence) {
        made.channel->Release(published);
      }
    }
    made.feed->Scan(0);
    Fill(*made.feed);
    ASSERT_THAT(BatchBytes(*made.feed, kept), ElementsAre(0, 1, 2, 3));
  }
  const auto all = made.channel->published();
  ASSERT_THAT(all, SizeIs(3 + 50 * 2));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].batch.sequence, i + 1);
    EXPECT_TRUE(i == 0 || all[i].slot != kept.slot);
  }
}

TEST_F(FeedTest, ARequestedReleaseIsPendingUntilItIsDone) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  Fill(*made.feed);
  const auto all = made.channel->published();
  EXPECT_FALSE(made.feed->has_pending_release());
  made.channel->Request(all[2]);
  EXPECT_FALSE(made.feed->Scan(0));
  EXPECT_TRUE(made.feed->has_pending_release());
  EXPECT_FALSE(made.feed->CanLaunch());
  made.channel->Release(all[2]);
  EXPECT_TRUE(made.feed->Scan(0));
  EXPECT_FALSE(made.feed->has_pending_release());
  EXPECT_TRUE(made.feed->CanLaunch());
}

TEST_F(FeedTest, ASeekDropsWhatRunsAndLeavesWhatIsPublished) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  ASSERT_THAT(made.feed->Launch(1), IsOk());
  backend_.CompleteAll();
  ASSERT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  LaunchAll(*made.feed);  // two more run
  made.channel->Seek({.generation = 1, .epoch = 7, .batch = 2});
  EXPECT_TRUE(made.feed->Scan(0));
  backend_.CompleteAll();
  ASSERT_THAT(made.feed->Collect(), IsOkAndHolds(2));
  ASSERT_THAT(made.channel->published(), SizeIs(1));

  Fill(*made.feed);
  const auto all = made.channel->published();
  ASSERT_THAT(all, SizeIs(3));
  EXPECT_EQ(all[1].batch.sequence, 2);
  EXPECT_EQ(all[1].batch.generation, 1);
  EXPECT_EQ(all[1].batch.epoch, 7);
  EXPECT_EQ(all[1].batch.batch, 2);
  EXPECT_EQ(all[2].batch.epoch, 8);
  EXPECT_EQ(all[2].batch.batch, 0);
  EXPECT_NE(all[1].slot, all[0].slot);
}

// Draws one sample of ten alone.
std::shared_ptr<const WeightTable> OnlyOf(int sample) {
  auto table = std::make_shared<WeightTable>(WeightTable::Options{
      .num_samples = 10, .dataset_size = 10, .dataset = "d"});
  std::vector<double> weights(10);
  weights[sample] = 1;
  EXPECT_THAT(table->Append(weights), IsOk());
  EXPECT_THAT(table->Finish(), IsOk());
  return table;
}

class WeightedFeedTest : public FeedTest {
 protected:
  void SetWeights(int sample) {
    auto weights = OnlyOf(sample);
    tables_.push_back(weights);
    made_.feed->SetWeights(std::move(weights), [this](auto unused) {
      discarded_.push_back(std::move(unused));
    });
  }
  void Seek(uint64_t generation, uint64_t epoch) {
    made_.channel->Seek({.generation = generation, .epoch = epoch, .batch = 0});
  }
  // Takes all that is published; the samples of which it is, by generation.
  std::map<uint64_t, std::set<int>> Take() {
    std::map<uint64_t, std::set<int>> samples;
    for (; taken_ < made_.channel->published().size(); ++taken_) {
      const MemoryChannel::Published published =
          made_.channel->published()[taken_];
      for (const uint8_t byte : BatchBytes(*made_.feed, published)) {
        samples[published.batch.generation].insert(byte);
      }
      made_.channel->Release(published);
    }
    made_.feed->Scan(0);
    return samples;
  }
  std::map<uint64_t, std::set<int>> FillAndTake() {
    Fill(*made_.feed);
    return Take();
  }

  TestFeed made_ = MakeTestFeed(&backend_, {.weights = OnlyOf(1)});
  std::vector<std::weak_ptr<const WeightTable>> tables_;
  std::vector<std::shared_ptr<const WeightTable>> discarded_;
  size_t taken_ = 0;
};

using BySeek = std::map<uint64_t, std::set<int>>;

TEST_F(WeightedFeedTest, WeightsTakeEffectWithTheNextSeekAlone) {
  EXPECT_EQ(FillAndTake(), BySeek({{0, {1}}}));
  SetWeights(5);
  // Several epochs on.
  for (int i = 0; i < 5; ++i) EXPECT_EQ(FillAndTake(), BySeek({{0, {1}}}));
  LaunchAll(*made_.feed);
  EXPECT_THAT(discarded_, SizeIs(0));
  // What was launched before is dropped.
  Seek(1, 9);
  made_.feed->Scan(0);
  EXPECT_THAT(discarded_, SizeIs(1));
  EXPECT_EQ(FillAndTake(), BySeek());
  EXPECT_EQ(FillAndTake(), BySeek({{1, {5}}}));
  Seek(2, 9);
  made_.feed->Scan(0);
  EXPECT_EQ(FillAndTake(), BySeek({{2, {5}}}));
}

TEST_F(WeightedFeedTest, TheLastWeightsBeforeASeekCount) {
  for (const int sample : {5, 6, 7}) SetWeights(sample);
  discarded_.clear();
  EXPECT_TRUE(tables_[0].expired() && tables_[1].expired());
  Seek(1, 0);
  made_.feed->Scan(0);
  EXPECT_EQ(FillAndTake(), BySeek({{1, {7}}}));
  SetWeights(8);
  Seek(2, 0);
  made_.feed->Scan(0);
  // Nobody else has those that it no longer uses.
  discarded_.clear();
  EXPECT_TRUE(tables_[2].expired());
  EXPECT_EQ(FillAndTake(), BySeek({{2, {8}}}));
}

TEST_F(WeightedFeedTest, ASeekThatWasMadeBeforeDoesNotHaveThem) {
  SetWeights(5);
  Seek(1, 3);  // not read yet
  SetWeights(6);
  EXPECT_EQ(FillAndTake(), BySeek({{1, {5}}}));
  Seek(2, 3);
  made_.feed->Scan(0);
  EXPECT_EQ(FillAndTake(), BySeek({{2, {6}}}));
}

TEST_F(WeightedFeedTest, ASenselessSeekDoesNotBringThem) {
  SetWeights(5);
  Seek(1, kMaxEpoch + 1);
  made_.feed->Scan(0);
  EXPECT_EQ(FillAndTake(), BySeek({{0, {1}}}));
}

TEST_F(FeedTest, SenselessSeeksAreCountedAndChangeNothing) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  const ring::SeekRequest senseless[] = {
      {.generation = 0, .epoch = 1, .batch = 0},
      {.generation = 1, .epoch = uint64_t{1} << 32, .batch = 0},
      {.generation = 1, .epoch = ~uint64_t{0}, .batch = ~uint64_t{0}},
      {.generation = 1, .epoch = 0, .batch = 4},
  };
  for (const ring::SeekRequest& seek : senseless) {
    made.channel->Seek(seek);
    EXPECT_FALSE(made.feed->Scan(0));
  }
  EXPECT_EQ(made.feed->stats().num_ignored_seeks.load(), 4);
  Fill(*made.feed);
  EXPECT_EQ(made.channel->published()[0].batch.epoch, 0);
  EXPECT_EQ(made.channel->published()[0].batch.generation, 0);
}

TEST_F(FeedTest, TheEndOfAnEpochIsTheBeginningOfTheNext) {
  const TestFeed made =
      MakeTestFeed(&backend_, {.start = {.epoch = 2, .batch = 3}});
  Fill(*made.feed);
  EXPECT_EQ(made.channel->published()[0].batch.epoch, 3);
  EXPECT_EQ(made.channel->published()[0].batch.batch, 0);
}

TEST_F(FeedTest, TheLastEpochIsTheEnd) {
  const TestFeed made =
      MakeTestFeed(&backend_, {.start = {.epoch = 0xFFFFFFFF, .batch = 2}});
  Fill(*made.feed);
  EXPECT_THAT(made.channel->published(), SizeIs(1));
  EXPECT_FALSE(made.feed->CanLaunch());
}

TEST_F(FeedTest, AnEpochWithoutBatchesIsLegal) {
  const TestFeed made = MakeTestFeed(
      &backend_, {.num_samples = 3, .batch_size = 4, .drop_last = true});
  EXPECT_EQ(made.feed->batches_per_epoch(), 0);
  EXPECT_FALSE(made.feed->CanLaunch());
  EXPECT_FALSE(made.feed->PrepareNextEpoch());
  made.channel->Seek({.generation = 1, .epoch = 5, .batch = 0});
  EXPECT_TRUE(made.feed->Scan(0));
  EXPECT_FALSE(made.feed->CanLaunch());
}

TEST_F(FeedTest, FailedWorkIsNeverPublished) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  LaunchAll(*made.feed);
  backend_.CompleteNext();
  ASSERT_THAT(made.feed->Collect(), IsOkAndHolds(1));
  backend_.FailNext(absl::InternalError("an illegal address"));
  EXPECT_THAT(made.feed->Collect(), StatusIs(absl::StatusCode::kInternal,
                                             HasSubstr("an illegal address")));
  EXPECT_THAT(made.channel->published(), SizeIs(1));
}

TEST_F(FeedTest, AStoppedFeedPublishesNothing) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  LaunchAll(*made.feed);
  EXPECT_FALSE(made.feed->is_quiescent());
  made.feed->Stop();
  EXPECT_TRUE(made.channel->is_closed());
  EXPECT_FALSE(made.feed->CanLaunch());
  backend_.CompleteAll();
  EXPECT_THAT(made.feed->Collect(), IsOkAndHolds(3));
  EXPECT_TRUE(made.feed->is_quiescent());
  EXPECT_THAT(made.channel->published(), SizeIs(0));
}

TEST_F(FeedTest, WaitingForTheClientIsCounted) {
  const TestFeed made = MakeTestFeed(&backend_, {});
  made.feed->Scan(1000);
  Fill(*made.feed);
  made.feed->Scan(2000);  // from here on every slot is out
  made.feed->Scan(2500);
  made.channel->Release(made.channel->published()[0]);
  made.feed->Scan(3000);
  made.feed->Scan(9000);
  EXPECT_EQ(made.feed->stats().daemon_wait_nanoseconds.load(), 1000);
}

TEST_F(FeedTest, EveryFailedAllocationIsAnErrorAndLeaksNothing) {
  const auto dataset = testing::MakeByteDataset(&backend_, 10);
  const int before = backend_.num_live_objects();
  int num_failures = 0;
  for (int k = 1;; ++k) {
    Feed::Options options;
    options.dataset = dataset;
    options.program = std::make_unique<AugmentProgram>();
    options.program->indices_offset_bytes = -1;
    options.sampler.num_samples = 10;
    options.sampler.batch_size = 4;
    options.num_slots = 3;
    options.slot_stride_bytes = 512;
    auto slab = backend_.AllocateExported(2048, ExportKind::kMemfd);
    ASSERT_THAT(slab, IsOk());
    backend_.FailAllocation(k);
    const auto feed = Feed::Create(std::move(options), *std::move(slab),
                                   std::make_unique<MemoryChannel>(3), nullptr);
    backend_.FailAllocation(0);
    if (feed.ok()) break;
    EXPECT_THAT(feed, StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(backend_.num_live_objects(), before);
    ++num_failures;
  }
  // Indices, program, stream, and an event for each slot.
  EXPECT_EQ(num_failures, 6);
}

// A client's order over the bytes of MakeTestFeed.
class FeedOrderTest : public FeedTest {
 protected:
  FeedOrderTest() {
    ClientOrder::Options options;
    options.num_samples = 10;
    options.batch_size = 4;
    options.capacity = 16;
    order_ = std::make_shared<ClientOrder>(options);
    made_ = MakeTestFeed(&backend_, {.order = order_});
  }
  void Send(FeedPosition start, const std::vector<uint32_t>& sizes,
            const std::vector<int64_t>& indices, uint64_t generation = 0) {
    ASSERT_THAT(order_->Append({.generation = generation,
                                .start = start,
                                .batch_sizes = sizes,
                                .indices = indices}),
                IsOk());
  }
  void ReleaseAll() {
    for (const auto& published : made_.channel->published()) {
      made_.channel->Release(published);
    }
    made_.feed->Scan(0);
  }

  std::shared_ptr<ClientOrder> order_;
  TestFeed made_;
};

TEST_F(FeedOrderTest, PublishesWhatWasSentAndWaitsForMore) {
  EXPECT_EQ(made_.feed->batches_per_epoch(), 0);
  EXPECT_FALSE(made_.feed->CanLaunch());
  EXPECT_FALSE(made_.feed->PrepareNextEpoch());
  Send({0, 0}, {3, 1}, {9, 9, 2, 5});
  Fill(*made_.feed);
  EXPECT_FALSE(made_.feed->CanLaunch());
  auto all = made_.channel->published();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_THAT(BatchBytes(*made_.feed, all[0]), ElementsAre(9, 9, 2));
  EXPECT_THAT(BatchBytes(*made_.feed, all[1]), ElementsAre(5));
  EXPECT_EQ(all[0].batch.num_samples, 3);
  EXPECT_EQ(all[1].batch.batch, 1);

  Send({0, 2}, {4}, {0, 1, 0, 1});
  Send({1, 0}, {1}, {7});
  Fill(*made_.feed);
  ReleaseAll();
  Fill(*made_.feed);
  all = made_.channel->published();
  ASSERT_THAT(all, SizeIs(4));
  EXPECT_THAT(BatchBytes(*made_.feed, all[2]), ElementsAre(0, 1, 0, 1));
  EXPECT_EQ(all[3].batch.epoch, 1);
  EXPECT_EQ(all[3].batch.batch, 0);
  EXPECT_EQ(all[3].batch.sequence, 4);
}

TEST_F(FeedOrderTest, ABlockOfANewGenerationIsASeek) {
  Send({0, 0}, {1, 1, 1, 1, 1}, {1, 2, 3, 4, 5});
  ASSERT_THAT(made_.feed->Launch(1), IsOkAndHolds(true));
  backend_.CompleteAll();
  ASSERT_THAT(made_.feed->Collect(), IsOkAndHolds(1));
  ASSERT_THAT(made_.feed->Launch(1), IsOkAndHolds(true));  // runs
  Send({3, 2}, {2}, {8, 9}, 1);
  ASSERT_THAT(made_.feed->Launch(1), IsOkAndHolds(true));
  backend_.CompleteAll();
  ASSERT_THAT(made_.feed->Collect(), IsOkAndHolds(2));
  const auto all = made_.channel->published();
  ASSERT_THAT(all, SizeIs(2));
  EXPECT_EQ(all[0].batch.generation, 0);
  EXPECT_EQ(all[1].batch.generation, 1);
  EXPECT_EQ(all[1].batch.epoch, 3);
  EXPECT_EQ(all[1].batch.batch, 2);
  EXPECT_THAT(BatchBytes(*made_.feed, all[1]), ElementsAre(8, 9));
  EXPECT_FALSE(made_.feed->CanLaunch());
}

TEST_F(FeedOrderTest, TheRingsSeekIsIgnoredAndCounted) {
  made_.channel->Seek({.generation = 1, .epoch = 0, .batch = 0});
  EXPECT_FALSE(made_.feed->Scan(0));
  EXPECT_EQ(made_.feed->stats().num_ignored_seeks.load(), 1);
  Send({0, 0}, {1}, {6});
  Fill(*made_.feed);
  EXPECT_EQ(made_.channel->published()[0].batch.generation, 0);
}

}  // namespace
}  // namespace datasetd
