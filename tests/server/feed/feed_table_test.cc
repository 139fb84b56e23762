#include "server/feed/feed_table.h"

#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/memory_channel.h"
#include "tests/testing/ops.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::MemoryChannel;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::Op;
using ::datasetd::testing::SourceGate;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::With;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr Caller kAlice = {.session_id = 1, .uid = 1000, .pid = 10};
constexpr Caller kBob = {.session_id = 2, .uid = 1001, .pid = 20};
constexpr uint64_t kBudgetBytes = 64 << 20;
constexpr uint64_t kSlabBytes = 2 << 20;

// Sets the transforms of field `image`. `Request` has a map `fields`.
template <typename Request>
void SetTransforms(Request* request, const std::vector<v1::Transform>& ops) {
  *(*request->mutable_fields())["image"].mutable_transforms() = {ops.begin(),
                                                                 ops.end()};
}

class FeedTableTest : public ::testing::Test {
 protected:
  explicit FeedTableTest(const MemoryBudget::UserLimits& user_limits = {}) {
    auto backend = std::make_unique<FakeBackend>(FakeBackendOptions{});
    backend_ = backend.get();
    std::vector<ServedDevice> devices(1);
    devices[0].backend = std::move(backend);
    devices[0].budget =
        std::make_unique<MemoryBudget>(kBudgetBytes, user_limits);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{.max_datasets_per_user = 3}, devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          return std::make_unique<FakeSource>(10, 1, spec.path(), 7, &gate_);
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
    EXPECT_THAT(registry_->Load(NamedSpec("a"), kAlice), IsOk());
    EXPECT_EQ(registry_->Await("a", absl::Seconds(30))->state,
              DatasetState::kReady);
    auto table = FeedTable::Create(
        {.max_feeds = 4,
         .max_feeds_per_user = 3,
         .attach_timeout = absl::Seconds(10)},
        devices_.get(), registry_.get(),
        [](uint32_t num_slots) -> absl::StatusOr<std::unique_ptr<FeedChannel>> {
          return std::make_unique<MemoryChannel>(num_slots);
        },
        &clock_, [](const char*, const FeedInfo&) {},
        [](uint64_t, absl::Status status) {
          ADD_FAILURE() << status.ToString();
        });
    EXPECT_THAT(table, IsOk());
    table_ = *std::move(table);
  }
  ~FeedTableTest() override {
    // Work that runs must end before the table can be destroyed.
    std::atomic<bool> is_gone = false;
    std::thread destroyer([&] {
      table_.reset();
      is_gone.store(true);
    });
    while (!is_gone.load()) backend_->CompleteAll();
    destroyer.join();
    registry_.reset();
  }

  static v1::OpenFeedRequest Options(const std::string& text = "") {
    v1::OpenFeedRequest request;
    request.mutable_options()->set_dataset("a");
    request.mutable_options()->set_batch_size(4);
    request.mutable_options()->set_prefetch(2);
    return With(request, text);
  }
  uint64_t slab_bytes() const {
    return devices_->devices()[0].budget->used_bytes_of_kind(MemoryKind::kSlab);
  }
  uint64_t scratch_bytes() const {
    return devices_->devices()[0].budget->used_bytes_of_kind(
        MemoryKind::kScratch);
  }
  int num_dataset_feeds() const {
    return registry_->Await("a", absl::ZeroDuration())->num_feeds;
  }
  // Until the producer has let go of an ended feed.
  void AwaitPhase(uint64_t id, FeedPhase phase) {
    while (true) {
      backend_->CompleteAll();
      for (const FeedInfo& info : table_->List()) {
        if (info.feed.feed_id() == id && info.phase == phase) return;
      }
    }
  }
  void AwaitGone() {
    while (table_->num_feeds() > 0) backend_->CompleteAll();
  }

  SourceGate gate_;
  FakeClock clock_;
  FakeBackend* backend_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> registry_;
  std::unique_ptr<FeedTable> table_;
};

TEST_F(FeedTableTest, AFeedsLifeFromOpenToTheLastByte) {
  const auto opened = table_->Open(Options(), kAlice);
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->layout().num_slots(), 4);
  EXPECT_EQ(opened->prefetch(), 2);
  EXPECT_EQ(opened->batches_per_epoch(), 3);
  EXPECT_EQ(opened->slab().size_bytes(), kSlabBytes);
  EXPECT_EQ(slab_bytes(), kSlabBytes);
  EXPECT_GT(scratch_bytes(), 0);
  EXPECT_EQ(num_dataset_feeds(), 1);
  EXPECT_EQ(backend_->num_launches(), 0);

  const auto descriptors = table_->Attach(opened->feed_id(), kAlice.session_id);
  ASSERT_THAT(descriptors, IsOk());
  EXPECT_THAT(*descriptors, SizeIs(2));  // the channel's, and the slab's
  while (backend_->num_pending_launches() == 0) {
  }

  table_->EndLease(opened->feed_id());
  EXPECT_EQ(table_->List()[0].phase, FeedPhase::kEnding);
  AwaitPhase(opened->feed_id(), FeedPhase::kLingering);
  EXPECT_EQ(slab_bytes(), kSlabBytes);
  EXPECT_EQ(scratch_bytes(), 0);
  EXPECT_EQ(num_dataset_feeds(), 0);

  table_->FreeSlab(opened->feed_id());
  table_->AwaitEnded(absl::Seconds(30));
  EXPECT_EQ(slab_bytes(), 0);
  EXPECT_THAT(table_->List(), SizeIs(0));
}

TEST_F(FeedTableTest, ASlabGivenUpEarlyGoesWhenTheWorkHasEnded) {
  const auto opened = table_->Open(Options(), kAlice);
  ASSERT_THAT(opened, IsOk());
  ASSERT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
  while (backend_->num_pending_launches() == 0) {
  }
  table_->EndLease(opened->feed_id());
  table_->FreeSlab(opened->feed_id());
  EXPECT_EQ(slab_bytes(), kSlabBytes);
  AwaitGone();
  EXPECT_EQ(slab_bytes(), 0);
}

TEST_F(FeedTableTest, AwaitEndedWaitsForWhatRuns) {
  const auto opened = table_->Open(Options(), kAlice);
  ASSERT_THAT(opened, IsOk());
  ASSERT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
  while (backend_->num_pending_launches() == 0) {
  }
  table_->EndLease(opened->feed_id());
  table_->FreeSlab(opened->feed_id());
  // A launch runs, and may run for longer than anybody waits.
  table_->AwaitEnded(absl::ZeroDuration());
  EXPECT_THAT(registry_->Unload("a", false, kAlice),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("1 open feeds")));
  std::atomic<bool> has_ended = false;
  std::thread device([&] {
    while (!has_ended.load()) backend_->CompleteAll();
  });
  table_->AwaitEnded(absl::Seconds(30));
  has_ended.store(true);
  device.join();
  EXPECT_EQ(slab_bytes(), 0);
  EXPECT_THAT(registry_->Unload("a", false, kAlice), IsOk());
}

TEST_F(FeedTableTest, OpeningEvictsADatasetThatNobodyUses) {
  ASSERT_THAT(registry_->Load(NamedSpec("unused"), kBob), IsOk());
  ASSERT_EQ(registry_->Await("unused", absl::Seconds(30))->state,
            DatasetState::kReady);
  // How much a feed takes.
  ASSERT_THAT(table_->Open(Options(), kAlice), IsOk());
  const uint64_t feed_bytes = slab_bytes() + scratch_bytes();
  table_->EndSession(kAlice.session_id);
  table_->AwaitEnded(absl::Seconds(30));
  MemoryBudget& budget = *devices_->devices()[0].budget;
  const auto filler =
      budget.Reserve(MemoryKind::kScratch, 0,
                     budget.free_bytes() - feed_bytes + 1, "the rest");
  ASSERT_THAT(filler, IsOk());
  // One byte is wanting, and what is held stays.
  EXPECT_THAT(table_->Open(Options(), kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
  registry_->ReleaseSession(kBob.session_id);
  EXPECT_THAT(table_->Open(Options("options { keeps_datasets: true }"), kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
  EXPECT_THAT(table_->Open(Options(), kAlice), IsOk());
  EXPECT_THAT(registry_->List(), SizeIs(1));
}

TEST_F(FeedTableTest, OpeningEvictsNothingForAFeedThatCannotFit) {
  ASSERT_THAT(registry_->Load(NamedSpec("unused"), kBob), IsOk());
  ASSERT_EQ(registry_->Await("unused", absl::Seconds(30))->state,
            DatasetState::kReady);
  registry_->ReleaseSession(kBob.session_id);
  EXPECT_THAT(
      table_->Open(Options("options { batch_size: 104857600 }"), kAlice),
      StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
  // Nor for one whose slab has room, and whose scratch has not.
  ASSERT_THAT(table_->Open(Options(), kAlice), IsOk());
  const uint64_t needed = slab_bytes() + scratch_bytes();
  table_->EndSession(kAlice.session_id);
  table_->AwaitEnded(absl::Seconds(30));
  MemoryBudget& budget = *devices_->devices()[0].budget;
  const auto filler = budget.Reserve(
      MemoryKind::kScratch, 0, budget.free_bytes() - needed + 11, "the rest");
  ASSERT_THAT(filler, IsOk());
  EXPECT_THAT(table_->Open(Options(), kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
}

TEST_F(FeedTableTest, OpeningEvictsNothingForAnOrderThatIsWrong) {
  ASSERT_THAT(registry_->Load(NamedSpec("unused"), kBob), IsOk());
  ASSERT_EQ(registry_->Await("unused", absl::Seconds(30))->state,
            DatasetState::kReady);
  registry_->ReleaseSession(kBob.session_id);
  MemoryBudget& budget = *devices_->devices()[0].budget;
  ASSERT_THAT(table_->Open(Options(), kAlice), IsOk());
  const uint64_t feed_bytes = slab_bytes() + scratch_bytes();
  table_->EndSession(kAlice.session_id);
  table_->AwaitEnded(absl::Seconds(30));
  // One byte is wanting, which the unused dataset has.
  const auto filler =
      budget.Reserve(MemoryKind::kScratch, 0,
                     budget.free_bytes() - feed_bytes + 1, "the rest");
  ASSERT_THAT(filler, IsOk());
  for (const char* const order :
       {"rank: 5 world_size: 2", "first_position: 10", "start { batch: 4 }"}) {
    EXPECT_THAT(
        table_->Open(Options(absl::StrCat("options { ", order, " }")), kAlice),
        StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(registry_->List(), SizeIs(2));
  }
}

// Two of the test's feeds fit into a user's share.
class FeedTableScratchTest : public FeedTableTest {
 protected:
  FeedTableScratchTest() : FeedTableTest({.scratch_bytes = 4 << 20}) {}
};

TEST_F(FeedTableScratchTest, AUserHasAShareAndOthersHaveRoom) {
  ASSERT_THAT(registry_->Load(NamedSpec("unused"), kBob), IsOk());
  ASSERT_EQ(registry_->Await("unused", absl::Seconds(30))->state,
            DatasetState::kReady);
  registry_->ReleaseSession(kBob.session_id);
  const v1::OpenFeedRequest request = Options(
      "options { weighted_order { num_samples: 131072 lists_samples: true } }");
  ASSERT_THAT(table_->Open(request, kAlice), IsOk());
  const uint64_t feed_bytes = slab_bytes() + scratch_bytes();
  ASSERT_THAT(table_->Open(request, kAlice), IsOk());
  // One byte is wanting, which the unused dataset has.
  MemoryBudget& budget = *devices_->devices()[0].budget;
  const auto filler =
      budget.Reserve(MemoryKind::kDataset, 0,
                     budget.free_bytes() - feed_bytes + 1, "the rest");
  ASSERT_THAT(filler, IsOk());
  EXPECT_THAT(table_->Open(request, kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("uid 1000"),
                             HasSubstr("user_limits.max_scratch_mib"))));
  EXPECT_THAT(registry_->List(), SizeIs(2));
  EXPECT_THAT(table_->Open(request, kBob), IsOk());
  EXPECT_THAT(registry_->List(), SizeIs(1));
}

TEST_F(FeedTableTest, FeedsOfAPrivateDatasetAreSeenByThoseWhoSeeIt) {
  const v1::DatasetSpec spec = With(NamedSpec("secret"), "private: true");
  ASSERT_THAT(registry_->Load(spec, kBob), IsOk());
  ASSERT_EQ(registry_->Await("secret", absl::Seconds(30))->state,
            DatasetState::kReady);
  const v1::OpenFeedRequest options = Options("options { dataset: 'secret' }");
  constexpr Caller kRoot = {.session_id = 3, .is_privileged = true};
  ASSERT_THAT(table_->Open(Options(), kAlice), IsOk());
  ASSERT_THAT(table_->Open(options, kBob), IsOk());
  // Root's feed is that of Bob's dataset, too.
  ASSERT_THAT(table_->Open(options, kRoot), IsOk());
  EXPECT_THAT(table_->List(kAlice), SizeIs(1));
  EXPECT_THAT(table_->List(kBob), SizeIs(3));
  EXPECT_THAT(table_->List(kRoot), SizeIs(3));
  EXPECT_THAT(
      table_->Open(options, kAlice),
      StatusIs(absl::StatusCode::kNotFound, Not(HasSubstr("are: a, secret"))));
  // Pages.
  const uint64_t first = table_->List(kBob, 0, 1)[0].feed.feed_id();
  EXPECT_THAT(table_->List(kBob, first), SizeIs(2));
  EXPECT_THAT(table_->List(kBob, first, 1), SizeIs(1));
}

TEST_F(FeedTableTest, OnlyItsSessionAttachesAFeedAndOnce) {
  const auto opened = table_->Open(Options(), kAlice);
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT(table_->Attach(opened->feed_id(), kBob.session_id),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table_->Attach(opened->feed_id() + 1, kAlice.session_id),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
  EXPECT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(FeedTableTest, APendingFeedGoesWithItsSessionOrItsTime) {
  const auto first = table_->Open(Options(), kAlice);
  const auto second = table_->Open(Options(), kBob);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  table_->EndSession(kAlice.session_id);
  table_->AwaitEnded(absl::Seconds(30));
  EXPECT_EQ(slab_bytes(), kSlabBytes);
  clock_.Advance(absl::Seconds(9));
  table_->ExpirePending();
  EXPECT_THAT(table_->List(), SizeIs(1));
  clock_.Advance(absl::Seconds(1));
  table_->ExpirePending();
  table_->AwaitEnded(absl::Seconds(30));
  EXPECT_EQ(slab_bytes(), 0);
  EXPECT_EQ(num_dataset_feeds(), 0);
  EXPECT_THAT(
      table_->Attach(second->feed_id(), kBob.session_id),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("attach_timeout")));
}

TEST_F(FeedTableTest, AnAttachedFeedOutlivesItsSessionAndTime) {
  const auto opened = table_->Open(Options(), kAlice);
  ASSERT_THAT(opened, IsOk());
  ASSERT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
  table_->EndSession(kAlice.session_id);
  clock_.Advance(absl::Hours(1));
  table_->ExpirePending();
  EXPECT_THAT(table_->List(), SizeIs(1));
}

TEST_F(FeedTableTest, LimitsAndBadOptionsNameTheThing) {
  v1::OpenFeedRequest options = Options("options { batch_size: 0 }");
  EXPECT_THAT(
      table_->Open(options, kAlice),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("batch_size")));
  options = Options("options { batch_size: 1073741824 }");
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr(std::to_string(kBudgetBytes))));
  options = Options("options { dataset: 'b' }");
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'b'")));
  options = Options("options { device: 'cuda:0' }");
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("cuda:0"), HasSubstr("is on fake"))));
  options = Options("options { rank: 3 }");
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank")));
  for (const char* const prefetch : {"0", "63"}) {
    options = Options(absl::StrCat("options { prefetch: ", prefetch, " }"));
    EXPECT_THAT(table_->Open(options, kAlice),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("prefetch: "), HasSubstr(prefetch),
                               HasSubstr("1 to 62"))));
  }
  options = Options("options { name: '" + std::string(129, 'a') + "' }");
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("name: longer than 128")));
  options = Options("options { fields { key: 'mask' value {} } }");
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'mask'"), HasSubstr("image"))));
  options = Options("options { start { batch: 4 } }");
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("start")));
  // 257 is none, nor is it 1.
  options = Options();
  options.add_excluded_exports(static_cast<v1::ExportKind>(257));
  EXPECT_THAT(table_->Open(options, kAlice), IsOk());
  table_->EndSession(kAlice.session_id);
  table_->AwaitEnded(absl::Seconds(30));
  options = Options("excluded_exports: EXPORT_KIND_MEMFD");
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("memfd")));
  EXPECT_THAT(table_->List(), SizeIs(0));
  EXPECT_EQ(slab_bytes(), 0);
  EXPECT_EQ(num_dataset_feeds(), 0);

  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(table_->Open(Options(), kAlice), IsOk());
  }
  EXPECT_THAT(table_->Open(Options(), kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("uid 1000"),
                             HasSubstr("user_limits.max_feeds"))));
  ASSERT_THAT(table_->Open(Options(), kBob), IsOk());
  EXPECT_THAT(
      table_->Open(Options(), kBob),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("'max_feeds'")));
}

TEST_F(FeedTableTest, EveryFailedAllocationOfOpenLeavesNothing) {
  const int before = backend_->num_live_objects();
  int num_failures = 0;
  for (int k = 1;; ++k) {
    backend_->FailAllocation(k);
    const auto opened = table_->Open(Options(), kAlice);
    backend_->FailAllocation(0);
    if (opened.ok()) break;
    ++num_failures;
    EXPECT_THAT(opened, StatusIs(absl::StatusCode::kResourceExhausted));
    EXPECT_EQ(backend_->num_live_objects(), before);
    EXPECT_EQ(slab_bytes(), 0);
    EXPECT_EQ(scratch_bytes(), 0);
    EXPECT_EQ(num_dataset_feeds(), 0);
  }
  // Slab, indices, program, stream, and an event for each of four slots.
  EXPECT_EQ(num_failures, 8);
}

TEST_F(FeedTableTest, TotalsKeepWhatEndedFeedsDid) {
  const std::string device = devices_->devices()[0].name();
  EXPECT_EQ(table_->Totals().at(device).num_opened, 0);
  uint64_t num_batches = 0;
  for (uint64_t i = 1; i <= 2; ++i) {
    const auto opened = table_->Open(Options(), kAlice);
    ASSERT_THAT(opened, IsOk());
    ASSERT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
    // Four slots: two prefetched and two more.
    while (table_->Totals().at(device).num_batches < num_batches + 4) {
      backend_->CompleteAll();
    }
    num_batches = table_->Totals().at(device).num_batches;
    EXPECT_EQ(num_batches, 4 * i);
    table_->EndLease(opened->feed_id());
    table_->FreeSlab(opened->feed_id());
    AwaitGone();
    const FeedTotals totals = table_->Totals().at(device);
    EXPECT_EQ(totals.num_opened, i);
    EXPECT_EQ(totals.num_batches, num_batches);
    // Batches of 4, 4, 2 and 4, since the dataset has ten samples.
    EXPECT_EQ(totals.num_samples, 14 * i);
    EXPECT_EQ(std::accumulate(totals.hand_over.counts.begin(),
                              totals.hand_over.counts.end(), uint64_t{0}),
              num_batches);
  }
}

TEST_F(FeedTableTest, DropPendingFreesAndListsByDataset) {
  const auto pending = table_->Open(Options(), kAlice);
  const auto attached = table_->Open(Options(), kAlice);
  ASSERT_THAT(pending, IsOk());
  ASSERT_THAT(attached, IsOk());
  ASSERT_THAT(table_->Attach(attached->feed_id(), kAlice.session_id), IsOk());
  const Dataset other({});
  EXPECT_THAT(table_->DropPending(&other), SizeIs(0));
  const auto use = registry_->Use("a", kAlice);
  ASSERT_THAT(use, IsOk());
  EXPECT_THAT(table_->DropPending(use->dataset().get()),
              ElementsAre(attached->feed_id()));
  table_->AwaitEnded(absl::Seconds(30));
  EXPECT_THAT(table_->List(), SizeIs(1));
}

TEST_F(FeedTableTest, ATransformsHashFollowsThePipelines) {
  v1::OpenFeedRequest flip = Options();
  SetTransforms(flip.mutable_options(), {Op("random_horizontal_flip {}")});
  const auto plain = table_->Open(Options(), kAlice);
  const auto same = table_->Open(Options(), kBob);
  const auto other = table_->Open(flip, kAlice);
  ASSERT_THAT(plain, IsOk());
  ASSERT_THAT(same, IsOk());
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(plain->transforms_hash(), same->transforms_hash());
  EXPECT_NE(plain->transforms_hash(), other->transforms_hash());
}

TEST_F(FeedTableTest, ExplainTellsOfEverySampleAndTakesNoMemory) {
  auto request = With(v1::ExplainTransformsRequest(),
                      "dataset: 'a' seed: 5 epoch: 3 indices: [ 9, 0, 9 ]");
  SetTransforms(&request,
                {Op("pad { padding { left: 1 top: 2 right: 3 bottom: 4 } }"),
                 Op("random_horizontal_flip { p: 1.0 }")});
  const auto told = table_->Explain(request, kAlice);
  ASSERT_THAT(told, IsOk());
  ASSERT_THAT(told->samples(), SizeIs(3));
  EXPECT_EQ(told->samples(0).index(), 9);
  EXPECT_EQ(told->samples(1).index(), 0);
  for (const v1::ExplainedSample& sample : told->samples()) {
    ASSERT_THAT(sample.ops(), SizeIs(2));
    EXPECT_EQ(sample.ops(0).field(), "image");
    EXPECT_EQ(sample.ops(0).name(), "Pad");
    EXPECT_THAT(sample.ops(0).parameters(0).values(), ElementsAre(1, 2, 3, 4));
    EXPECT_EQ(sample.ops(1).name(), "HorizontalFlip");
    EXPECT_EQ(sample.ops(1).position(), 1);
    EXPECT_TRUE(sample.ops(1).is_applied());
  }
  EXPECT_THAT(table_->List(), SizeIs(0));
  EXPECT_EQ(num_dataset_feeds(), 0);
  EXPECT_EQ(slab_bytes() + scratch_bytes(), 0u);
}

TEST_F(FeedTableTest, ExplainRefusesWhatItCannotTell) {
  auto request =
      With(v1::ExplainTransformsRequest(), "dataset: 'a' indices: [ 0, 10 ]");
  EXPECT_THAT(
      table_->Explain(request, kAlice),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("indices: 10"), HasSubstr("10 samples"))));
  // Ops inside others count.
  v1::Transform group = Op("random_apply {}");
  for (int i = 0; i < 98; ++i) {
    group.mutable_random_apply()->add_transforms()->mutable_horizontal_flip();
  }
  SetTransforms(&request, {group});
  request.mutable_indices()->Resize(201, 0);
  EXPECT_THAT(table_->Explain(request, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("201 samples of 100 ops"),
                             HasSubstr("at most 200"))));
  SetTransforms(&request, {Op("normalize { mean: 0 std: 1 }")});
  request.clear_indices();
  EXPECT_THAT(table_->Explain(request, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("transforms[0] Normalize")));
  request.set_dataset("b");
  EXPECT_THAT(table_->Explain(request, kAlice),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'b'")));
}

class FeedTableOrderTest : public FeedTableTest {
 protected:
  static v1::OpenFeedRequest OrderOptions(const std::string& text = "") {
    return With(Options("options { client_order {} }"), text);
  }
  absl::Status Send(uint64_t feed_id, const Caller& caller,
                    const std::vector<int64_t>& indices,
                    FeedPosition start = {}) {
    const std::vector<uint32_t> sizes = {static_cast<uint32_t>(indices.size())};
    return table_->SendIndices(
        feed_id, caller.session_id,
        {.start = start, .batch_sizes = sizes, .indices = indices});
  }
};

TEST_F(FeedTableOrderTest, WhatIsSentIsMade) {
  const auto opened = table_->Open(OrderOptions(), kAlice);
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->batches_per_epoch(), 0);
  // Two for each of four slots, and 64 more.
  EXPECT_EQ(opened->order_capacity(), 72);
  EXPECT_EQ(opened->num_samples(), 10);
  // Before the feed is attached, too.
  EXPECT_THAT(Send(opened->feed_id(), kAlice, {9, 0}), IsOk());
  ASSERT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
  const std::string device = devices_->devices()[0].name();
  while (table_->Totals().at(device).num_batches < 1) backend_->CompleteAll();
  EXPECT_THAT(Send(opened->feed_id(), kAlice, {1, 1, 1}, {0, 1}), IsOk());
  // A batch is counted before its samples are.
  while (table_->Totals().at(device).num_samples < 5) backend_->CompleteAll();
  EXPECT_EQ(table_->Totals().at(device).num_samples, 5);
  EXPECT_EQ(table_->Totals().at(device).num_batches, 2);
  EXPECT_EQ(table_->List()[0].feed.position().batch(), 2);
}

TEST_F(FeedTableOrderTest, OnlyItsSessionSendsAndOnlyToAFeedThatWants) {
  const auto mine = table_->Open(OrderOptions(), kAlice);
  const auto plain = table_->Open(Options(), kAlice);
  ASSERT_THAT(mine, IsOk());
  ASSERT_THAT(plain, IsOk());
  EXPECT_THAT(Send(mine->feed_id(), kBob, {1}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Send(mine->feed_id() + 7, kAlice, {1}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Send(plain->feed_id(), kAlice, {1}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("client_order")));
  EXPECT_THAT(Send(mine->feed_id(), kAlice, {10}),
              StatusIs(absl::StatusCode::kOutOfRange));
  table_->EndSession(kAlice.session_id);
  EXPECT_THAT(Send(mine->feed_id(), kAlice, {1}),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(FeedTableOrderTest, ItsMemoryIsCounted) {
  const auto plain = table_->Open(Options(), kAlice);
  const uint64_t without = scratch_bytes();
  const auto opened = table_->Open(OrderOptions(), kAlice);
  ASSERT_THAT(opened, IsOk());
  EXPECT_GE(scratch_bytes(), 2 * without + 72 * 4 * sizeof(uint32_t));
  table_->EndSession(kAlice.session_id);
  table_->AwaitEnded(absl::Seconds(30));
  EXPECT_EQ(scratch_bytes(), 0);
}

TEST_F(FeedTableOrderTest, OptionsThatExcludeIt) {
  const std::pair<const char*, const char*> changes[] = {
      {"shuffle", "shuffle: true"},
      {"drop_last", "drop_last: true"},
      {"subset", "subset { indices: [ 1, 2 ] }"},
      {"first_position", "first_position: 1"},
      {"batch_size", "batch_size: 262145"},
      {"batch_size", "batch_size: 0"},
      {"rank is 1, world_size 1", "rank: 1"},
      {"rank is 2, world_size 2", "rank: 2 world_size: 2"}};
  for (const auto& [word, change] : changes) {
    const auto options = OrderOptions(absl::StrCat("options { ", change, " }"));
    EXPECT_THAT(table_->Open(options, kAlice),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
  }
  const auto options =
      OrderOptions("options { start { epoch: 5 batch: 1000 } }");
  EXPECT_THAT(table_->Open(options, kAlice), IsOk());
}

class FeedTableWeightsTest : public FeedTableTest {
 protected:
  static v1::OpenFeedRequest WeightedOptions(const std::string& text = "") {
    return With(Options("options { weighted_order { num_samples: 10 } }"),
                text);
  }
  uint64_t Open() {
    const auto opened = table_->Open(WeightedOptions(), kAlice);
    EXPECT_THAT(opened, IsOk());
    EXPECT_EQ(opened->num_samples(), 10);
    EXPECT_EQ(opened->batches_per_epoch(), 3);
    return opened->feed_id();
  }
  absl::Status Send(uint64_t feed_id, const std::vector<double>& weights,
                    uint64_t first = 0, const Caller& caller = kAlice) {
    return table_->SendWeights(feed_id, caller.session_id,
                               {.first = first, .weights = weights});
  }
};

TEST_F(FeedTableWeightsTest, AFeedIsAttachedOnceItHasAllWeights) {
  const uint64_t id = Open();
  EXPECT_THAT(
      table_->Attach(id, kAlice.session_id),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("weights")));
  EXPECT_THAT(Send(id, {0, 0, 0, 2}), IsOk());
  EXPECT_THAT(table_->Attach(id, kAlice.session_id),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Send(id, {0, 0, 0, 0, 0, 0}, 4), IsOk());
  ASSERT_THAT(table_->Attach(id, kAlice.session_id), IsOk());
  // They are fixed now.
  EXPECT_THAT(Send(id, {1}, 10), StatusIs(absl::StatusCode::kNotFound));
  const std::string device = devices_->devices()[0].name();
  // A batch is counted before its samples are.
  while (table_->Totals().at(device).num_samples < 14) backend_->CompleteAll();
  EXPECT_EQ(table_->Totals().at(device).num_samples, 14);
  EXPECT_EQ(table_->Totals().at(device).num_batches, 4);
}

TEST_F(FeedTableWeightsTest, WeightsThatComeRenewTheDeadline) {
  const uint64_t id = Open();
  for (uint64_t i = 0; i < 9; ++i) {
    clock_.Advance(absl::Seconds(9));
    table_->ExpirePending();
    EXPECT_THAT(Send(id, {1}, i), IsOk());
  }
  clock_.Advance(absl::Seconds(10));
  table_->ExpirePending();
  table_->AwaitEnded(absl::Seconds(30));
  EXPECT_THAT(Send(id, {1}, 9), StatusIs(absl::StatusCode::kNotFound,
                                         HasSubstr("attach_timeout")));
  EXPECT_EQ(scratch_bytes(), 0);
}

TEST_F(FeedTableWeightsTest, WrongWeightsEndTheFeed) {
  for (const double wrong : {-1.0, std::nan(""), HUGE_VAL}) {
    const uint64_t id = Open();
    EXPECT_GT(scratch_bytes(), 10 * sizeof(double));
    EXPECT_THAT(Send(id, {1, wrong}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("weights[1], of sample 1")));
    table_->AwaitEnded(absl::Seconds(30));
    EXPECT_EQ(table_->num_feeds(), 0);
    EXPECT_EQ(scratch_bytes(), 0);
    EXPECT_EQ(slab_bytes(), 0);
    EXPECT_EQ(num_dataset_feeds(), 0);
  }
}

TEST_F(FeedTableWeightsTest, OnlyItsSessionSendsAndOnlyToAFeedThatWants) {
  const uint64_t id = Open();
  const auto plain = table_->Open(Options(), kAlice);
  ASSERT_THAT(plain, IsOk());
  EXPECT_THAT(Send(id, {1}, 0, kBob), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Send(id + 7, {1}), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Send(plain->feed_id(), {1}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("weighted_order")));
  EXPECT_THAT(table_->List(), SizeIs(2));
  EXPECT_THAT(table_->SendIndices(id, kAlice.session_id, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(FeedTableWeightsTest, OptionsThatExcludeThem) {
  const std::pair<const char*, const char*> changes[] = {
      {"shuffle", "shuffle: true"},
      {"subset", "subset { indices: [ 1, 2 ] }"},
      {"client_order", "client_order {}"},
      {"first_position is 10", "first_position: 10"},
      {"num_samples is 9", "weighted_order { num_samples: 9 }"}};
  for (const auto& [word, change] : changes) {
    const auto options =
        WeightedOptions(absl::StrCat("options { ", change, " }"));
    EXPECT_THAT(table_->Open(options, kAlice),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)));
  }
}

TEST_F(FeedTableTest, ASubsetIsCheckedAndCounted) {
  const auto open = [this](const std::vector<int64_t>& subset) {
    v1::OpenFeedRequest request = Options("options { subset {} }");
    *request.mutable_options()->mutable_subset()->mutable_indices() = {
        subset.begin(), subset.end()};
    return table_->Open(request, kAlice);
  };
  const auto opened = open({9, 0, 4, 3, 2});
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->num_samples(), 5);
  EXPECT_EQ(opened->batches_per_epoch(), 2);
  EXPECT_THAT(open({}), StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("1 to 1000000")));
  EXPECT_THAT(open({1, 10}), StatusIs(absl::StatusCode::kOutOfRange,
                                      HasSubstr("subset[1]: 10")));
  EXPECT_THAT(open({-1}), StatusIs(absl::StatusCode::kOutOfRange,
                                   HasSubstr("subset[0]: -1")));
  EXPECT_THAT(open({1, 2, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("subset[2]"), HasSubstr("twice"))));
  EXPECT_THAT(open(std::vector<int64_t>(1'000'001)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(table_->List(), SizeIs(1));
}

}  // namespace
}  // namespace datasetd
