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
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/memory_channel.h"
#include "tests/testing/ops.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/sealed_memory.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::MemoryChannel;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::Op;
using ::datasetd::testing::SealedMemory;
using ::datasetd::testing::SourceGate;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::With;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using enum absl::StatusCode;

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
    LoadReady(NamedSpec("a"), kAlice);
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
  void LoadReady(const v1::DatasetSpec& spec, const Caller& caller) {
    ASSERT_THAT(testing::Load(*registry_, spec, caller), IsOk());
    ASSERT_EQ(
        testing::AwaitLoaded(*registry_, spec.name(), absl::Seconds(30))->state,
        DatasetState::kReady);
  }
  // A dataset that nobody holds.
  void LoadUnused() {
    LoadReady(NamedSpec("unused"), kBob);
    registry_->ReleaseSession(kBob.session_id);
  }
  // How much a feed of Options() takes.
  uint64_t MeasureFeed() {
    EXPECT_THAT(table_->Open(Options(), kAlice), IsOk());
    const uint64_t feed_bytes = slab_bytes() + scratch_bytes();
    table_->EndSession(kAlice.session_id);
    table_->AwaitEnded(absl::Seconds(30));
    return feed_bytes;
  }
  // Takes all memory but for this much.
  Reservation LeaveFree(uint64_t free_bytes) {
    MemoryBudget& budget = *devices_->devices()[0].budget;
    auto filler = budget.Reserve(MemoryKind::kDataset, 0,
                                 budget.free_bytes() - free_bytes, "the rest");
    EXPECT_THAT(filler, IsOk());
    return *std::move(filler);
  }
  FeedTotals totals() const {
    return table_->Totals().at(devices_->devices()[0].name());
  }
  int num_dataset_feeds() const {
    return testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
        ->dataset.num_feeds();
  }
  // Opens and attaches a feed, and waits for its first launch.
  uint64_t OpenRunning() {
    const auto opened = table_->Open(Options(), kAlice);
    EXPECT_THAT(opened, IsOk());
    EXPECT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
    while (backend_->num_pending_launches() == 0) {
    }
    return opened->feed_id();
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
  const uint64_t id = OpenRunning();
  table_->EndLease(id);
  table_->FreeSlab(id);
  EXPECT_EQ(slab_bytes(), kSlabBytes);
  AwaitGone();
  EXPECT_EQ(slab_bytes(), 0);
}

TEST_F(FeedTableTest, AwaitEndedWaitsForWhatRuns) {
  const uint64_t id = OpenRunning();
  table_->EndLease(id);
  table_->FreeSlab(id);
  // A launch runs, and may run for longer than anybody waits.
  table_->AwaitEnded(absl::ZeroDuration());
  EXPECT_THAT(registry_->Unload("a", false, kAlice),
              StatusIs(kFailedPrecondition, HasSubstr("1 open feeds")));
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
  LoadReady(NamedSpec("unused"), kBob);
  // One byte is wanting, and what is held stays.
  const Reservation filler = LeaveFree(MeasureFeed() - 1);
  EXPECT_THAT(table_->Open(Options(), kAlice), StatusIs(kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
  registry_->ReleaseSession(kBob.session_id);
  EXPECT_THAT(table_->Open(Options("options { keeps_datasets: true }"), kAlice),
              StatusIs(kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
  EXPECT_THAT(table_->Open(Options(), kAlice), IsOk());
  EXPECT_THAT(registry_->List(), SizeIs(1));
}

TEST_F(FeedTableTest, OpeningEvictsNothingForAFeedThatCannotFit) {
  LoadUnused();
  EXPECT_THAT(
      table_->Open(Options("options { batch_size: 104857600 }"), kAlice),
      StatusIs(kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
  // Nor for one whose slab has room, and whose scratch has not.
  const Reservation filler = LeaveFree(MeasureFeed() - 11);
  EXPECT_THAT(table_->Open(Options(), kAlice), StatusIs(kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
}

TEST_F(FeedTableTest, OpeningEvictsNothingForAnOrderThatIsWrong) {
  LoadUnused();
  // One byte is wanting, which the unused dataset has.
  const Reservation filler = LeaveFree(MeasureFeed() - 1);
  for (const char* const order :
       {"rank: 5 world_size: 2", "first_position: 10", "start { batch: 4 }"}) {
    EXPECT_THAT(
        table_->Open(Options(absl::StrCat("options { ", order, " }")), kAlice),
        StatusIs(kInvalidArgument));
    EXPECT_THAT(registry_->List(), SizeIs(2));
  }
}

// Two of the test's feeds fit into a user's share.
class FeedTableScratchTest : public FeedTableTest {
 protected:
  FeedTableScratchTest() : FeedTableTest({.scratch_bytes = 4 << 20}) {}
};

TEST_F(FeedTableScratchTest, AUserHasAShareAndOthersHaveRoom) {
  LoadUnused();
  const v1::OpenFeedRequest request = Options(
      "options { weighted_order { num_samples: 131072 lists_samples: true } }");
  ASSERT_THAT(table_->Open(request, kAlice), IsOk());
  const uint64_t feed_bytes = slab_bytes() + scratch_bytes();
  ASSERT_THAT(table_->Open(request, kAlice), IsOk());
  // One byte is wanting, which the unused dataset has.
  const Reservation filler = LeaveFree(feed_bytes - 1);
  EXPECT_THAT(table_->Open(request, kAlice),
              StatusIs(kResourceExhausted,
                       AllOf(HasSubstr("uid 1000"),
                             HasSubstr("user_limits.max_scratch_mib"))));
  EXPECT_THAT(registry_->List(), SizeIs(2));
  EXPECT_THAT(table_->Open(request, kBob), IsOk());
  EXPECT_THAT(registry_->List(), SizeIs(1));
}

TEST_F(FeedTableTest, FeedsOfAPrivateDatasetAreSeenByThoseWhoSeeIt) {
  const v1::DatasetSpec spec = With(NamedSpec("secret"), "private: true");
  LoadReady(spec, kBob);
  const v1::OpenFeedRequest options = Options("options { dataset: 'secret' }");
  constexpr Caller kRoot = {.session_id = 3, .is_privileged = true};
  ASSERT_THAT(table_->Open(Options(), kAlice), IsOk());
  ASSERT_THAT(table_->Open(options, kBob), IsOk());
  // Root's feed is that of Bob's dataset, too.
  ASSERT_THAT(table_->Open(options, kRoot), IsOk());
  EXPECT_THAT(table_->List(kAlice), SizeIs(1));
  EXPECT_THAT(table_->List(kBob), SizeIs(3));
  EXPECT_THAT(table_->List(kRoot), SizeIs(3));
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(kNotFound, Not(HasSubstr("are: a, secret"))));
  // Pages.
  const uint64_t first = table_->List(kBob, 0, 1)[0].feed.feed_id();
  EXPECT_THAT(table_->List(kBob, first), SizeIs(2));
  EXPECT_THAT(table_->List(kBob, first, 1), SizeIs(1));
}

TEST_F(FeedTableTest, OnlyItsSessionAttachesAFeedAndOnce) {
  const auto opened = table_->Open(Options(), kAlice);
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT(table_->Attach(opened->feed_id(), kBob.session_id),
              StatusIs(kNotFound));
  EXPECT_THAT(table_->Attach(opened->feed_id() + 1, kAlice.session_id),
              StatusIs(kNotFound));
  EXPECT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
  EXPECT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id),
              StatusIs(kNotFound));
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
  EXPECT_THAT(table_->Attach(second->feed_id(), kBob.session_id),
              StatusIs(kNotFound, HasSubstr("attach_timeout")));
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
  const struct {
    std::string options;
    absl::StatusCode code;
    std::vector<std::string> words;
  } refused[] = {
      {"batch_size: 0", kInvalidArgument, {"batch_size"}},
      {"batch_size: 1073741824",
       kResourceExhausted,
       {std::to_string(kBudgetBytes)}},
      {"dataset: 'b'", kNotFound, {"'b'"}},
      {"device: 'cuda:0'", kInvalidArgument, {"cuda:0", "is on fake"}},
      {"rank: 3", kInvalidArgument, {"rank"}},
      {"prefetch: 0", kInvalidArgument, {"prefetch: ", "0", "1 to 62"}},
      {"prefetch: 63", kInvalidArgument, {"prefetch: ", "63", "1 to 62"}},
      {"name: '" + std::string(129, 'a') + "'",
       kInvalidArgument,
       {"name: longer than 128"}},
      {"fields { key: 'mask' value {} }",
       kInvalidArgument,
       {"'mask'", "image"}},
      {"start { batch: 4 }", kInvalidArgument, {"start"}}};
  for (const auto& [text, code, words] : refused) {
    const absl::Status status =
        table_->Open(Options("options { " + text + " }"), kAlice).status();
    EXPECT_EQ(status.code(), code) << text;
    for (const std::string& word : words) {
      EXPECT_THAT(status.message(), HasSubstr(word)) << text;
    }
  }
  // 257 is none, nor is it 1.
  v1::OpenFeedRequest options = Options();
  options.add_excluded_exports(static_cast<v1::ExportKind>(257));
  EXPECT_THAT(table_->Open(options, kAlice), IsOk());
  table_->EndSession(kAlice.session_id);
  table_->AwaitEnded(absl::Seconds(30));
  options = Options("excluded_exports: EXPORT_KIND_MEMFD");
  EXPECT_THAT(table_->Open(options, kAlice),
              StatusIs(kUnimplemented, HasSubstr("memfd")));
  EXPECT_THAT(table_->List(), SizeIs(0));
  EXPECT_EQ(slab_bytes(), 0);
  EXPECT_EQ(num_dataset_feeds(), 0);

  for (int i = 0; i < 3; ++i) {
    ASSERT_THAT(table_->Open(Options(), kAlice), IsOk());
  }
  EXPECT_THAT(
      table_->Open(Options(), kAlice),
      StatusIs(kResourceExhausted, AllOf(HasSubstr("uid 1000 has 3 feeds"),
                                         HasSubstr("user_limits.max_feeds"))));
  ASSERT_THAT(table_->Open(Options(), kBob), IsOk());
  EXPECT_THAT(table_->Open(Options(), kBob),
              StatusIs(kResourceExhausted,
                       HasSubstr("there are 4 feeds already, which is "
                                 "'max_feeds'")));
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
    EXPECT_THAT(opened, StatusIs(kResourceExhausted));
    EXPECT_EQ(backend_->num_live_objects(), before);
    EXPECT_EQ(slab_bytes(), 0);
    EXPECT_EQ(scratch_bytes(), 0);
    EXPECT_EQ(num_dataset_feeds(), 0);
  }
  // Slab, indices, program, stream, and an event for each of four slots.
  EXPECT_EQ(num_failures, 8);
}

TEST_F(FeedTableTest, TotalsKeepWhatEndedFeedsDid) {
  EXPECT_EQ(totals().num_opened, 0);
  uint64_t num_batches = 0;
  for (uint64_t i = 1; i <= 2; ++i) {
    const auto opened = table_->Open(Options(), kAlice);
    ASSERT_THAT(opened, IsOk());
    ASSERT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
    // Four slots: two prefetched and two more.
    while (totals().num_batches < num_batches + 4) {
      backend_->CompleteAll();
    }
    num_batches = totals().num_batches;
    EXPECT_EQ(num_batches, 4 * i);
    table_->EndLease(opened->feed_id());
    table_->FreeSlab(opened->feed_id());
    AwaitGone();
    const FeedTotals all = totals();
    EXPECT_EQ(all.num_opened, i);
    EXPECT_EQ(all.num_batches, num_batches);
    // Batches of 4, 4, 2 and 4, since the dataset has ten samples.
    EXPECT_EQ(all.num_samples, 14 * i);
    EXPECT_EQ(std::accumulate(all.hand_over.counts.begin(),
                              all.hand_over.counts.end(), uint64_t{0}),
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

// ---- Mixtures ----

v1::OpenFeedRequest MixtureOf(const std::vector<std::string>& names) {
  v1::OpenFeedRequest request;
  request.mutable_options()->set_batch_size(4);
  request.mutable_options()->set_prefetch(2);
  for (const std::string& name : names) {
    request.mutable_options()->mutable_mixture()->add_parts()->set_dataset(
        name);
  }
  return request;
}

class FeedTableMixtureTest : public FeedTableTest {
 protected:
  FeedTableMixtureTest() { LoadReady(NamedSpec("b"), kBob); }
  int num_feeds(const std::string& name) {
    for (const DatasetInfo& info : registry_->List()) {
      if (info.dataset.name() == name) return info.dataset.num_feeds();
    }
    return -1;
  }
};

TEST_F(FeedTableMixtureTest, AMixtureIsAFeedOfEachPart) {
  const auto opened = table_->Open(MixtureOf({"a", "b", "a"}), kAlice);
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->num_samples(), 30u);
  EXPECT_EQ(num_feeds("a"), 1);
  EXPECT_EQ(num_feeds("b"), 1);
  EXPECT_EQ(table_->List()[0].feed.dataset(), "a + b + a");
  constexpr Caller kRoot = {.session_id = 3, .is_privileged = true};
  for (const char* const name : {"a", "b"}) {
    EXPECT_THAT(registry_->Unload(name, false, kRoot),
                StatusIs(kFailedPrecondition, HasSubstr("feed")));
  }
  table_->EndSession(kAlice.session_id);
  table_->AwaitEnded(absl::Seconds(30));
  EXPECT_EQ(num_feeds("a"), 0);
  EXPECT_EQ(num_feeds("b"), 0);
  EXPECT_EQ(slab_bytes() + scratch_bytes(), 0u);
}

TEST_F(FeedTableMixtureTest, ItEndsWithAnyOfItsParts) {
  for (const char* const name : {"a", "b"}) {
    const auto opened = table_->Open(MixtureOf({"a", "b"}), kAlice);
    ASSERT_THAT(opened, IsOk());
    ASSERT_THAT(table_->Attach(opened->feed_id(), kAlice.session_id), IsOk());
    const auto use = registry_->Use(name, kAlice);
    ASSERT_THAT(use, IsOk());
    EXPECT_THAT(table_->DropPending(use->dataset().get()),
                ElementsAre(opened->feed_id()));
    table_->EndLease(opened->feed_id());
    table_->FreeSlab(opened->feed_id());
  }
}

TEST_F(FeedTableMixtureTest, APrivatePartHidesIt) {
  LoadReady(With(NamedSpec("secret"), "private: true"), kBob);
  EXPECT_THAT(table_->Open(MixtureOf({"a", "secret"}), kAlice),
              StatusIs(kNotFound, Not(HasSubstr("are: a, b, secret"))));
  ASSERT_THAT(table_->Open(MixtureOf({"a", "secret"}), kBob), IsOk());
  EXPECT_THAT(table_->List(kAlice), SizeIs(0));
  EXPECT_THAT(table_->List(kBob), SizeIs(1));
  EXPECT_EQ(num_feeds("a"), 1);
}

TEST_F(FeedTableMixtureTest, WhatIsHashed) {
  std::vector<std::string> hashes;
  const auto open = [&](v1::OpenFeedRequest request, const std::string& text) {
    const auto opened = table_->Open(With(request, text), kAlice);
    EXPECT_THAT(opened, IsOk());
    table_->EndSession(kAlice.session_id);
    table_->AwaitEnded(absl::Seconds(30));
    return opened.ok() ? opened->content_hash() : "";
  };
  const auto set_ratios = [](double a, double b) {
    v1::OpenFeedRequest request = MixtureOf({"a", "b"});
    request.mutable_options()->mutable_mixture()->mutable_parts(0)->set_ratio(
        a);
    request.mutable_options()->mutable_mixture()->mutable_parts(1)->set_ratio(
        b);
    return request;
  };
  hashes.push_back(open(MixtureOf({"a", "b"}), ""));
  hashes.push_back(open(MixtureOf({"a"}), ""));
  hashes.push_back(open(set_ratios(1, 3), ""));
  EXPECT_EQ(open(set_ratios(2, 6), "options { mixture { num_rows: 20 } }"),
            hashes.back());
  hashes.push_back(open(set_ratios(3, 1), ""));
  hashes.push_back(
      open(set_ratios(1, 3), "options { mixture { num_rows: 21 } }"));
  hashes.push_back(open(set_ratios(1, 3),
                        "options { mixture { is_fixed_per_batch: true } }"));
  for (size_t i = 0; i < hashes.size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_NE(hashes[i], hashes[k]) << i << k;
  }
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
  EXPECT_THAT(table_->Explain(request, kAlice),
              StatusIs(kInvalidArgument, AllOf(HasSubstr("indices: 10"),
                                               HasSubstr("10 samples"))));
  // Ops inside others count.
  v1::Transform group = Op("random_apply {}");
  for (int i = 0; i < 98; ++i) {
    group.mutable_random_apply()->add_transforms()->mutable_horizontal_flip();
  }
  SetTransforms(&request, {group});
  request.mutable_indices()->Resize(201, 0);
  EXPECT_THAT(
      table_->Explain(request, kAlice),
      StatusIs(kInvalidArgument, AllOf(HasSubstr("201 samples of 100 ops"),
                                       HasSubstr("at most 200"))));
  SetTransforms(&request, {Op("normalize { mean: 0 std: 1 }")});
  request.clear_indices();
  EXPECT_THAT(table_->Explain(request, kAlice),
              StatusIs(kInvalidArgument, HasSubstr("transforms[0] Normalize")));
  request.set_dataset("b");
  EXPECT_THAT(table_->Explain(request, kAlice),
              StatusIs(kNotFound, HasSubstr("'b'")));
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
  while (totals().num_batches < 1) backend_->CompleteAll();
  EXPECT_THAT(Send(opened->feed_id(), kAlice, {1, 1, 1}, {0, 1}), IsOk());
  // A batch is counted before its samples are.
  while (totals().num_samples < 5) backend_->CompleteAll();
  EXPECT_EQ(totals().num_samples, 5);
  EXPECT_EQ(totals().num_batches, 2);
  EXPECT_EQ(table_->List()[0].feed.position().batch(), 2);
}

TEST_F(FeedTableOrderTest, OnlyItsSessionSendsAndOnlyToAFeedThatWants) {
  const auto mine = table_->Open(OrderOptions(), kAlice);
  const auto plain = table_->Open(Options(), kAlice);
  ASSERT_THAT(mine, IsOk());
  ASSERT_THAT(plain, IsOk());
  EXPECT_THAT(Send(mine->feed_id(), kBob, {1}), StatusIs(kNotFound));
  EXPECT_THAT(Send(mine->feed_id() + 7, kAlice, {1}), StatusIs(kNotFound));
  EXPECT_THAT(Send(plain->feed_id(), kAlice, {1}),
              StatusIs(kFailedPrecondition, HasSubstr("client_order")));
  EXPECT_THAT(Send(mine->feed_id(), kAlice, {10}), StatusIs(kOutOfRange));
  table_->EndSession(kAlice.session_id);
  EXPECT_THAT(Send(mine->feed_id(), kAlice, {1}), StatusIs(kNotFound));
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
      {"subset", "subset_size: 2"},
      {"first_position", "first_position: 1"},
      {"rows_per_epoch", "rows_per_epoch: 1"},
      {"batch_size", "batch_size: 262145"},
      {"batch_size", "batch_size: 0"},
      {"rank is 1, world_size 1", "rank: 1"},
      {"rank is 2, world_size 2", "rank: 2 world_size: 2"}};
  for (const auto& [word, change] : changes) {
    const auto options = OrderOptions(absl::StrCat("options { ", change, " }"));
    EXPECT_THAT(table_->Open(options, kAlice),
                StatusIs(kInvalidArgument, HasSubstr(word)));
  }
  const auto options =
      OrderOptions("options { start { epoch: 5 batch: 1000 } }");
  EXPECT_THAT(table_->Open(options, kAlice), IsOk());
}

class FeedTableArraysTest : public FeedTableTest {
 protected:
  using FeedTableTest::FeedTableTest;

  static v1::OpenFeedRequest WeightedOptions(const std::string& text = "") {
    return With(Options("options { weighted_order { num_samples: 10 } }"),
                text);
  }
  uint64_t Open(const v1::OpenFeedRequest& request = WeightedOptions()) {
    const auto opened = table_->Open(request, kAlice);
    EXPECT_THAT(opened, IsOk());
    return opened->feed_id();
  }
  std::shared_ptr<OrderArrays> Take(uint64_t feed_id) {
    const auto arrays = table_->TakeArrays(feed_id, kAlice.session_id);
    EXPECT_THAT(arrays, IsOk());
    return *arrays;
  }
  template <typename T>
  static absl::Status Read(OrderArrays& arrays, const std::vector<T>& numbers) {
    std::vector<FileDescriptor> descriptors;
    descriptors.push_back(SealedMemory(numbers));
    EXPECT_THAT(arrays.Check(descriptors), IsOk());
    return arrays.Read(descriptors);
  }
  absl::Status Set(uint64_t feed_id, const std::vector<double>& weights) {
    std::vector<FileDescriptor> descriptors;
    descriptors.push_back(SealedMemory(weights));
    DATASETD_RETURN_IF_ERROR(table_->CheckWeights(feed_id, descriptors));
    return table_->SetWeights(feed_id, descriptors);
  }
};

TEST_F(FeedTableArraysTest, AFeedIsAttachedOnceItsWeightsWereRead) {
  const uint64_t id = Open();
  EXPECT_THAT(
      Read(*Take(id), std::vector<double>({0, 0, 0, 2, 0, 0, 0, 0, 0, 0})),
      IsOk());
  ASSERT_THAT(table_->Attach(id, kAlice.session_id), IsOk());
  // They are fixed now.
  EXPECT_THAT(table_->TakeArrays(id, kAlice.session_id), StatusIs(kNotFound));
  // A batch is counted before its samples are.
  while (totals().num_samples < 14) backend_->CompleteAll();
  EXPECT_EQ(totals().num_samples, 14);
  EXPECT_EQ(totals().num_batches, 4);
}

TEST_F(FeedTableArraysTest, AFeedWithoutAnyIsAttachedAtOnce) {
  const uint64_t id = Open(Options());
  EXPECT_TRUE(Take(id)->is_empty());
  EXPECT_THAT(table_->Attach(id, kAlice.session_id), IsOk());
}

TEST_F(FeedTableArraysTest, TheDeadlineDoesNotPassWhileTheyAreRead) {
  const uint64_t id = Open();
  const auto arrays = Take(id);
  clock_.Advance(absl::Seconds(11));
  table_->ExpirePending();
  EXPECT_THAT(Read(*arrays, std::vector<double>(10, 1)), IsOk());
  EXPECT_THAT(table_->Attach(id, kAlice.session_id), IsOk());
}

TEST_F(FeedTableArraysTest, TheEndOfAFeedCancelsReadingAndReturnsTheMemory) {
  const uint64_t id = Open();
  auto arrays = Take(id);
  table_->EndLease(id);
  table_->AwaitEnded(absl::Seconds(30));
  EXPECT_THAT(Read(*arrays, std::vector<double>(10, 1)), StatusIs(kCancelled));
  EXPECT_THAT(table_->Attach(id, kAlice.session_id), StatusIs(kNotFound));
  // Who still reads has the memory, which counts.
  EXPECT_GE(scratch_bytes(), 10 * sizeof(double));
  arrays.reset();
  EXPECT_EQ(scratch_bytes(), 0);
  EXPECT_EQ(slab_bytes(), 0);
  EXPECT_EQ(num_dataset_feeds(), 0);
}

TEST_F(FeedTableArraysTest, OneConnectionOfItsSessionSendsThem) {
  const uint64_t id = Open();
  EXPECT_THAT(table_->TakeArrays(id, kBob.session_id), StatusIs(kNotFound));
  EXPECT_THAT(table_->TakeArrays(id + 7, kAlice.session_id),
              StatusIs(kNotFound, HasSubstr("attach_timeout")));
  Take(id);
  EXPECT_THAT(table_->TakeArrays(id, kAlice.session_id),
              StatusIs(kNotFound, HasSubstr("by another connection")));
  EXPECT_THAT(table_->SendIndices(id, kAlice.session_id, {}),
              StatusIs(kFailedPrecondition));
}

TEST_F(FeedTableArraysTest, OtherWeightsOfAnAttachedFeed) {
  const std::vector<double> weights(10, 1);
  const uint64_t id = Open();
  EXPECT_THAT(Set(id, weights), StatusIs(kNotFound, HasSubstr("attached")));
  ASSERT_THAT(Read(*Take(id), weights), IsOk());
  ASSERT_THAT(table_->Attach(id, kAlice.session_id), IsOk());
  const uint64_t one = scratch_bytes();
  EXPECT_THAT(Set(id, std::vector<double>(9, 1)),
              StatusIs(kInvalidArgument, HasSubstr("72 bytes")));
  EXPECT_THAT(Set(id, std::vector<double>(10, -1)),
              StatusIs(kInvalidArgument, HasSubstr("weights[0] is -1")));
  EXPECT_EQ(scratch_bytes(), one);
  // Of the one that nobody has sought to there is the last alone.
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Set(id, weights), IsOk());
  EXPECT_THAT(table_->CheckWeights(id, {}),
              StatusIs(kInvalidArgument, HasSubstr("call for 1: weights")));

  const uint64_t plain = Open(Options());
  Take(plain);
  ASSERT_THAT(table_->Attach(plain, kAlice.session_id), IsOk());
  EXPECT_THAT(Set(plain, weights),
              StatusIs(kFailedPrecondition, HasSubstr("does not draw by")));

  for (const uint64_t ended : {id, plain}) {
    table_->EndLease(ended);
    table_->FreeSlab(ended);
    EXPECT_THAT(Set(ended, weights), StatusIs(kNotFound));
  }
  AwaitGone();
  EXPECT_EQ(scratch_bytes(), 0);
}

class FeedTableShareOfArraysTest : public FeedTableArraysTest {
 protected:
  FeedTableShareOfArraysTest()
      : FeedTableArraysTest({.scratch_bytes = 4 << 20}) {}
};

TEST_F(FeedTableShareOfArraysTest, OtherWeightsAreOfTheUsersShare) {
  const std::vector<double> weights(10, 1);
  const uint64_t id = Open();
  ASSERT_THAT(Read(*Take(id), weights), IsOk());
  ASSERT_THAT(table_->Attach(id, kAlice.session_id), IsOk());
  MemoryBudget& budget = *devices_->devices()[0].budget;
  auto filler = budget.Reserve(
      MemoryKind::kScratch, kAlice.uid,
      budget.FreeBytesFor(MemoryKind::kScratch, kAlice.uid, {}), "filler");
  ASSERT_THAT(filler, IsOk());
  EXPECT_THAT(Set(id, weights),
              StatusIs(kResourceExhausted, AllOf(HasSubstr("uid 1000"),
                                                 HasSubstr("other weights"))));
  filler->Release();
  EXPECT_THAT(Set(id, weights), IsOk());
}

TEST_F(FeedTableArraysTest, OptionsThatExcludeWeights) {
  const std::pair<const char*, const char*> changes[] = {
      {"shuffle", "shuffle: true"},
      {"subset", "subset_size: 2"},
      {"client_order", "client_order {}"},
      {"first_position is 10", "first_position: 10"},
      {"num_samples is 9", "weighted_order { num_samples: 9 }"}};
  for (const auto& [word, change] : changes) {
    const auto options =
        WeightedOptions(absl::StrCat("options { ", change, " }"));
    EXPECT_THAT(table_->Open(options, kAlice),
                StatusIs(kInvalidArgument, HasSubstr(word)));
  }
}

TEST_F(FeedTableArraysTest, ASubsetIsCountedAndItsSamplesAreMade) {
  const auto opened =
      table_->Open(Options("options { subset_size: 5 }"), kAlice);
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(opened->num_samples(), 5);
  EXPECT_EQ(opened->batches_per_epoch(), 2);
  const uint64_t id = opened->feed_id();
  ASSERT_THAT(Read(*Take(id), std::vector<int64_t>({9, 0, 4, 3, 2})), IsOk());
  ASSERT_THAT(table_->Attach(id, kAlice.session_id), IsOk());
  while (totals().num_samples < 5) backend_->CompleteAll();
  EXPECT_THAT(table_->Open(Options("options { subset_size: 11 }"), kAlice),
              StatusIs(kInvalidArgument, HasSubstr("subset_size is 11")));
  EXPECT_THAT(
      table_->Open(Options("options { subset_size: 18446744073709551615 }"),
                   kAlice),
      StatusIs(kInvalidArgument));
}

}  // namespace
}  // namespace datasetd
