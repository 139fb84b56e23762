#include "server/registry/dataset_registry.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/content_hasher.h"
#include "base/digest.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/ops.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::Op;
using ::datasetd::testing::SetOption;
using ::datasetd::testing::SetPretransforms;
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
constexpr Caller kRoot = {
    .session_id = 3, .uid = 0, .pid = 30, .is_privileged = true};

class DatasetRegistryTest : public ::testing::Test {
 protected:
  explicit DatasetRegistryTest(const DatasetRegistry::Options& options = {
                                   .max_datasets_per_user = 3}) {
    std::vector<ServedDevice> devices(1);
    devices[0].backend = CreateHostBackend({.num_threads = 1});
    devices[0].budget = std::make_unique<MemoryBudget>(1000);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        options, devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan> scan)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          if (spec.path() == "/missing") {
            return absl::NotFoundError("/missing: no such file");
          }
          opening_.Pass(0).IgnoreError();
          const char* const named = file_;
          const std::string file = *named == '\0' ? spec.path() : named;
          if (file == "/endless") {
            scan->num_entries = 12;
            ++num_scanning_;
            while (!scan->is_cancelled) std::this_thread::yield();
            --num_scanning_;
            return absl::CancelledError("the load was cancelled");
          }
          return std::make_unique<FakeSource>(num_samples_, 1, file, fill_,
                                              &gate_);
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
  }
  ~DatasetRegistryTest() override {
    gate_.Open();
    opening_.Open();
  }

  DatasetInfo AwaitSettled(const std::string& name) {
    const auto info = testing::AwaitLoaded(*registry_, name, absl::Seconds(30));
    EXPECT_THAT(info, IsOk());
    return *info;
  }
  void LoadAndAwait(const std::string& name, const Caller& caller) {
    ASSERT_THAT(testing::Load(*registry_, NamedSpec(name), caller), IsOk());
    ASSERT_EQ(AwaitSettled(name).state, DatasetState::kReady);
    clock_.Advance(absl::Seconds(1));
  }
  static v1::DatasetSpec Pushed(const std::string& text = "") {
    return With(NamedSpec("a"), "format: 'push' path: '' " + text);
  }
  // Pushes "a", or compares it with what is there.
  // Returns the spec id.
  absl::StatusOr<std::string> Push(const Caller& caller, bool accepts_same,
                                   const v1::DatasetSpec& spec = Pushed()) {
    auto source = std::make_unique<FakeSource>(num_samples_, width_, "", fill_,
                                               &gate_, class_names_);
    DatasetRegistry::PushCalls calls = {.cancel = [] {}};
    if (accepts_same) calls.receive_digests = [this] { return digests_; };
    const auto info =
        registry_->Push(spec, std::move(source), caller, std::move(calls));
    if (!info.ok()) return info.status();
    return info->dataset.spec_id();
  }
  uint64_t used_bytes() const {
    return devices_->devices()[0].budget->used_bytes();
  }
  uint64_t counters_of_loads() const {
    return registry_->Summarize().totals.num_loads;
  }

  static v1::DatasetSpec Endless(const std::string& name) {
    return With(NamedSpec(name), "path: '/endless'");
  }
  // Begins a load whose scan does not end, and leaves it scanning.
  std::shared_ptr<LoadCall> BeginEndless(const std::string& name,
                                         const Caller& caller) {
    auto call = registry_->BeginLoad(Endless(name), caller);
    EXPECT_THAT(call, IsOk());
    while (num_scanning_ == 0) std::this_thread::yield();
    return *call;
  }
  void ExpectCancelled(LoadCall& call) {
    EXPECT_THAT(call.Await(absl::Seconds(30)),
                StatusIs(absl::StatusCode::kCancelled,
                         HasSubstr("the load was cancelled")));
  }

  SourceGate gate_;
  SourceGate opening_;
  std::atomic<const char*> file_ = "";  // unless empty, what sources have
  std::atomic<int> num_scanning_ = 0;
  FakeClock clock_;
  int64_t num_samples_ = 100;
  int64_t width_ = 1;  // of a pushed sample
  uint8_t fill_ = 7;
  std::vector<std::string> class_names_;  // of a push
  std::vector<Digest> digests_;           // that are sent instead of it
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> registry_;
};

TEST_F(DatasetRegistryTest, ASecondLoadAttachesAlsoWhileTheFirstRuns) {
  gate_.Close();
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob), IsOk());
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())->state,
            DatasetState::kLoading);
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
                ->dataset.num_holders(),
            2);
  EXPECT_EQ(used_bytes(), 100);
  gate_.Open();
  const DatasetInfo info = AwaitSettled("a");
  EXPECT_EQ(info.state, DatasetState::kReady);
  EXPECT_EQ(info.dataset.num_samples(), 100);
  EXPECT_EQ(info.dataset.resident_bytes(), 100);
  EXPECT_EQ(info.dataset.device(), "cpu");
  EXPECT_THAT(info.dataset.content_hash(), SizeIs(64));
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  EXPECT_EQ(gate_.num_reads(), 1);
  EXPECT_THAT(registry_->List(), SizeIs(1));
}

// While there is none of the name, and again when it is READY.
TEST_F(DatasetRegistryTest, AThousandLoadsOfANameAreOneLoadAndFewScans) {
  for (int round = 0; round < 2; ++round) {
    opening_.Close();
    const int num_scans = opening_.num_reads();
    std::vector<std::shared_ptr<LoadCall>> calls;
    for (uint64_t session = 1; session <= 1000; ++session) {
      auto call = registry_->BeginLoad(
          NamedSpec("a"), {.session_id = session, .uid = kAlice.uid});
      ASSERT_THAT(call, IsOk());
      calls.push_back(*std::move(call));
    }
    opening_.Open();
    for (const auto& call : calls) {
      const auto info = call->Await(absl::Seconds(30));
      ASSERT_THAT(info, IsOk());
      EXPECT_EQ(info->state, DatasetState::kReady);
    }
    // Those that came after a scan had begun have the next one.
    EXPECT_LE(opening_.num_reads() - num_scans, 2);
  }
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 1000);
  EXPECT_EQ(gate_.num_reads(), 1);
  EXPECT_EQ(counters_of_loads(), 1u);
}

TEST_F(DatasetRegistryTest, ANameTakenByAnotherSpecIsAnError) {
  LoadAndAwait("a", kAlice);
  const v1::DatasetSpec other = With(NamedSpec("a"), "path: '/data/other'");
  EXPECT_THAT(testing::Load(*registry_, other, kBob),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("'a'"), HasSubstr("/data/a"))));
}

TEST_F(DatasetRegistryTest, TheContentHashIsOfTheSamplesNotOfTheName) {
  LoadAndAwait("a", kAlice);
  LoadAndAwait("b", kAlice);
  fill_ = 8;
  LoadAndAwait("c", kAlice);
  EXPECT_EQ(AwaitSettled("a").dataset.content_hash(),
            AwaitSettled("b").dataset.content_hash());
  EXPECT_NE(AwaitSettled("a").dataset.content_hash(),
            AwaitSettled("c").dataset.content_hash());
  EXPECT_NE(AwaitSettled("a").dataset.spec_id(),
            AwaitSettled("b").dataset.spec_id());
}

TEST_F(DatasetRegistryTest, BadRequestsNameTheThing) {
  EXPECT_THAT(testing::Load(*registry_, NamedSpec(""), kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("../a"), kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  const v1::DatasetSpec missing = With(NamedSpec("a"), "path: '/missing'");
  EXPECT_THAT(testing::Load(*registry_, missing, kAlice),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/missing")));
  const v1::DatasetSpec elsewhere = With(NamedSpec("a"), "device: 'cuda:7'");
  EXPECT_THAT(testing::Load(*registry_, elsewhere, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("cuda:7"), HasSubstr("cpu"))));
  v1::DatasetSpec random = NamedSpec("a");
  SetPretransforms(random, "image", {Op("random_horizontal_flip {}")});
  EXPECT_THAT(testing::Load(*registry_, random, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("random op cannot run at load")));
  v1::DatasetSpec unknown = NamedSpec("a");
  SetPretransforms(unknown, "mask", {Op("to_dtype { dtype: DTYPE_FLOAT32 }")});
  EXPECT_THAT(testing::Load(*registry_, unknown, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no field 'mask'")));
  EXPECT_THAT(registry_->Hold("a", kAlice),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'a'")));
  EXPECT_THAT(registry_->Unload("a", true, kAlice),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(registry_->List(), SizeIs(0));
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(DatasetRegistryTest, AFailedLoadIsToldAndGivesItsMemoryBack) {
  gate_.FailWith(absl::DataLossError("/data/a: truncated"));
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  const DatasetInfo info = AwaitSettled("a");
  EXPECT_EQ(info.state, DatasetState::kFailed);
  EXPECT_THAT(info.error,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("truncated")));
  EXPECT_EQ(used_bytes(), 0);
  EXPECT_THAT(
      registry_->Use("a", kAlice),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("truncated")));
  // The name can be loaded again.
  gate_.FailWith(absl::OkStatus());
  LoadAndAwait("a", kAlice);
}

TEST_F(DatasetRegistryTest, OverBudgetNamesBothNumbersBeforeReading) {
  num_samples_ = 5000;
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("5000"), HasSubstr("1000"))));
  EXPECT_EQ(gate_.num_reads(), 0);
  EXPECT_THAT(registry_->List(), SizeIs(0));
}

TEST_F(DatasetRegistryTest, ALoadIsADatasetFromTheFirstMoment) {
  const auto call = BeginEndless("a", kAlice);
  clock_.Advance(absl::Seconds(5));
  const std::vector<DatasetInfo> infos = registry_->List();
  ASSERT_THAT(infos, SizeIs(1));
  EXPECT_EQ(infos[0].spec->name(), "a");
  EXPECT_EQ(infos[0].state, DatasetState::kLoading);
  EXPECT_TRUE(infos[0].dataset.progress().is_scanning());
  EXPECT_EQ(infos[0].dataset.progress().num_entries_scanned(), 12);
  EXPECT_EQ(infos[0].owner.uid, kAlice.uid);
  EXPECT_EQ(infos[0].dataset.num_holders(), 1);
  EXPECT_EQ(infos[0].dataset.progress().elapsed_seconds(), 5);
  EXPECT_TRUE(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
                  ->dataset.progress()
                  .is_scanning());
  EXPECT_TRUE(
      call->Await(absl::ZeroDuration())->dataset.progress().is_scanning());
  EXPECT_THAT(registry_->Use("a", kAlice),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("still loading")));
  // Its name is taken, and others go on.
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("/endless"),
                             HasSubstr("spec id not known yet"))));
  LoadAndAwait("b", kBob);
  EXPECT_EQ(counters_of_loads(), 1u);
  call->Cancel();
  ExpectCancelled(*call);
  EXPECT_THAT(registry_->List(), SizeIs(1));
  EXPECT_EQ(counters_of_loads(), 1u);
  EXPECT_EQ(used_bytes(), 100);
  LoadAndAwait("a", kBob);
}

TEST_F(DatasetRegistryTest, AScanEndsWithTheLastSessionThatHoldsIt) {
  const auto first = BeginEndless("a", kAlice);
  const auto second = registry_->BeginLoad(Endless("a"), kBob);
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ((*second)->id, first->id);
  registry_->ReleaseSession(kAlice.session_id);
  EXPECT_TRUE(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
                  ->dataset.progress()
                  .is_scanning());
  EXPECT_EQ(num_scanning_, 1);
  registry_->ReleaseSession(kBob.session_id);
  ExpectCancelled(**second);
  ExpectCancelled(*first);
  EXPECT_THAT(registry_->List(), SizeIs(0));
}

TEST_F(DatasetRegistryTest, UnloadCancelsAScan) {
  const auto call = BeginEndless("a", kAlice);
  EXPECT_THAT(registry_->Unload("a", false, kBob),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  ExpectCancelled(*call);
  EXPECT_THAT(registry_->Unload("a", false, kAlice),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(DatasetRegistryTest, ShutdownEndsScansAndWhoWaitsForThem) {
  const auto call = BeginEndless("a", kAlice);
  absl::Status loaded;
  std::thread waiter(
      [&] { loaded = testing::Load(*registry_, Endless("b"), kBob).status(); });
  while (num_scanning_ < 2) std::this_thread::yield();
  registry_->CancelLoads();
  waiter.join();
  EXPECT_FALSE(loaded.ok());
  // Does not wait for the load.
  EXPECT_THAT(call->Await(absl::InfiniteDuration()), IsOk());
  EXPECT_THAT(
      registry_->BeginLoad(NamedSpec("c"), kAlice),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
  registry_.reset();
  EXPECT_EQ(num_scanning_, 0);
}

TEST_F(DatasetRegistryTest, ALoadThatIsNotOpenedLeavesNothing) {
  const v1::DatasetSpec missing = With(NamedSpec("a"), "path: '/missing'");
  const auto call = registry_->BeginLoad(missing, kAlice);
  ASSERT_THAT(call, IsOk());
  // As often as it is asked, also when the dataset has gone.
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(
        (*call)->Await(absl::Seconds(30)),
        StatusIs(absl::StatusCode::kNotFound, "/missing: no such file"));
  }
  EXPECT_THAT(registry_->List(), SizeIs(0));
  // The failure of an earlier load stays.
  gate_.FailWith(absl::DataLossError("/data/a: truncated"));
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  const DatasetInfo failed = AwaitSettled("a");
  EXPECT_THAT(testing::Load(*registry_, missing, kAlice),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(AwaitSettled("a").error,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("truncated")));
  EXPECT_EQ(AwaitSettled("a").dataset.progress().elapsed_seconds(),
            failed.dataset.progress().elapsed_seconds());
  EXPECT_THAT(registry_->List(), SizeIs(1));
}

TEST_F(DatasetRegistryTest, AFailureThatComesBackIsNotHeldByEndedSessions) {
  gate_.FailWith(absl::DataLossError("/data/a: truncated"));
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 1);
  const auto call = BeginEndless("a", kBob);
  registry_->ReleaseSession(kAlice.session_id);
  registry_->ReleaseSession(kBob.session_id);
  ExpectCancelled(*call);
  EXPECT_EQ(AwaitSettled("a").state, DatasetState::kFailed);
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 0);
}

TEST_F(DatasetRegistryTest, WhatIsScannedCountsAsLoaded) {
  BeginEndless("a", kAlice);
  BeginEndless("b", kAlice);
  BeginEndless("c", kAlice);
  EXPECT_THAT(registry_->BeginLoad(Endless("d"), kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("user_limits.max_datasets")));
  EXPECT_EQ(registry_->Summarize().num_datasets, 3u);
}

// A user's scans beyond those that run wait, and another user's do not.
TEST_F(DatasetRegistryTest, ScansWaitForThreadsByUser) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(registry_->BeginLoad(Endless(absl::StrCat("e", i)), Caller()),
                IsOk());
  }
  while (num_scanning_ < 8) std::this_thread::yield();
  LoadAndAwait("a", kBob);
  EXPECT_EQ(num_scanning_, 8);
  registry_->ReleaseSession(Caller().session_id);
  while (registry_->List().size() > 1) std::this_thread::yield();
  EXPECT_EQ(num_scanning_, 0);
}

TEST_F(DatasetRegistryTest, WhoAttachesLooksAtTheFilesAndCanGiveThatUp) {
  LoadAndAwait("a", kAlice);
  file_ = "/endless";
  const auto call = registry_->BeginLoad(NamedSpec("a"), kBob);
  ASSERT_THAT(call, IsOk());
  while (num_scanning_ == 0) std::this_thread::yield();
  const auto info = (*call)->Await(absl::ZeroDuration());
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->state, DatasetState::kLoading);
  EXPECT_TRUE(info->dataset.progress().is_scanning());
  EXPECT_EQ(info->dataset.progress().num_entries_scanned(), 12);
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 1);
  (*call)->Cancel();
  ExpectCancelled(**call);
  const auto other = registry_->BeginLoad(NamedSpec("a"), kBob);
  ASSERT_THAT(other, IsOk());
  registry_->ReleaseSession(kBob.session_id);
  ExpectCancelled(**other);
  // Files that changed make another dataset.
  file_ = "/data/changed";
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("call ds.close() (or unload it)")));
  file_ = "";
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob), IsOk());
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 2);
  EXPECT_EQ(AwaitSettled("a").state, DatasetState::kReady);
}

TEST_F(DatasetRegistryTest, WhatWasUnloadedMeanwhileIsLoadedAgain) {
  LoadAndAwait("a", kAlice);
  opening_.Close();
  const auto call = registry_->BeginLoad(NamedSpec("a"), kBob);
  ASSERT_THAT(call, IsOk());
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  opening_.Open();
  const auto info = (*call)->Await(absl::Seconds(30));
  ASSERT_THAT(info, IsOk());
  const DatasetInfo settled = AwaitSettled("a");
  EXPECT_EQ(settled.state, DatasetState::kReady);
  EXPECT_EQ(settled.owner.uid, kBob.uid);
}

// A job whose call ran into its deadline asks again, before the daemon has
// noticed.
TEST_F(DatasetRegistryTest, ACallThatIsGivenUpLeavesOthersOfItsSession) {
  gate_.Close();
  auto first = registry_->BeginLoad(NamedSpec("a"), kAlice);
  ASSERT_THAT(first, IsOk());
  while (gate_.num_reads() == 0) std::this_thread::yield();
  auto second = registry_->BeginLoad(NamedSpec("a"), kAlice);
  ASSERT_THAT(second, IsOk());
  // Until it has looked at the files.
  while ((*second)
             ->Await(absl::ZeroDuration())
             ->dataset.progress()
             .is_scanning()) {
    std::this_thread::yield();
  }
  (*first)->Cancel();
  (*first)->Cancel();
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
                ->dataset.num_holders(),
            1);
  gate_.Open();
  const auto info = (*second)->Await(absl::Seconds(30));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->state, DatasetState::kReady);

  gate_.Close();
  first = registry_->BeginLoad(NamedSpec("b"), kAlice);
  second = registry_->BeginLoad(NamedSpec("b"), kAlice);
  (*second)->Cancel();
  (*first)->Cancel();
  gate_.Open();
  testing::AwaitLoaded(*registry_, "b", absl::Seconds(30)).IgnoreError();
  EXPECT_THAT(testing::AwaitLoaded(*registry_, "b", absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(DatasetRegistryTest, ACallThatIsGivenUpLeavesTheHoldByName) {
  gate_.Close();
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob), IsOk());
  ASSERT_THAT(registry_->Hold("a", kAlice), IsOk());
  const auto call = registry_->BeginLoad(NamedSpec("a"), kAlice);
  ASSERT_THAT(call, IsOk());
  while (
      (*call)->Await(absl::ZeroDuration())->dataset.progress().is_scanning()) {
    std::this_thread::yield();
  }
  (*call)->Cancel();
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
                ->dataset.num_holders(),
            2);
  ASSERT_THAT(registry_->Release("a", kAlice), IsOk());
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
                ->dataset.num_holders(),
            1);
  gate_.Open();
  EXPECT_EQ(AwaitSettled("a").state, DatasetState::kReady);
}

TEST_F(DatasetRegistryTest, ACallThatIsGivenUpLeavesTheHoldOfOneThatEnded) {
  gate_.Close();
  auto first = registry_->BeginLoad(NamedSpec("a"), kAlice);
  ASSERT_THAT(first, IsOk());
  const auto second = registry_->BeginLoad(NamedSpec("a"), kAlice);
  ASSERT_THAT(second, IsOk());
  while ((*second)
             ->Await(absl::ZeroDuration())
             ->dataset.progress()
             .is_scanning()) {
    std::this_thread::yield();
  }
  gate_.Open();
  EXPECT_EQ((*first)->Await(absl::Seconds(30))->state, DatasetState::kReady);
  first->reset();
  (*second)->Cancel();
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 1);
  ASSERT_THAT(registry_->Release("a", kAlice), IsOk());
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 0);
  // One that is given up before its client is told holds nothing.
  const auto third = registry_->BeginLoad(NamedSpec("b"), kAlice);
  ASSERT_THAT(third, IsOk());
  EXPECT_EQ(AwaitSettled("b").state, DatasetState::kReady);
  (*third)->Cancel();
  EXPECT_EQ(AwaitSettled("b").dataset.num_holders(), 0);
}

// Two loads of a user run at a time.
TEST_F(DatasetRegistryTest, ALoadThatIsCancelledBeforeItsTurnEndsAtOnce) {
  gate_.Close();
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("b"), kAlice), IsOk());
  while (gate_.num_reads() < 2) std::this_thread::yield();
  for (const bool is_unloaded : {false, true}) {
    ASSERT_THAT(testing::Load(*registry_, NamedSpec("c"), kAlice), IsOk());
    EXPECT_EQ(used_bytes(), 300);
    if (is_unloaded) {
      ASSERT_THAT(registry_->Unload("c", /*force=*/false, kAlice), IsOk());
    } else {
      ASSERT_THAT(registry_->Release("c", kAlice), IsOk());
    }
    testing::AwaitLoaded(*registry_, "c", absl::Seconds(30)).IgnoreError();
    EXPECT_THAT(testing::AwaitLoaded(*registry_, "c", absl::ZeroDuration()),
                StatusIs(absl::StatusCode::kNotFound));
    EXPECT_EQ(used_bytes(), 200);
  }
  EXPECT_EQ(gate_.num_reads(), 2);
  EXPECT_EQ(registry_->Summarize().totals.num_cancelled, 2u);
  gate_.Open();
  EXPECT_EQ(AwaitSettled("a").state, DatasetState::kReady);
  EXPECT_EQ(AwaitSettled("b").state, DatasetState::kReady);
  LoadAndAwait("c", kAlice);
}

TEST_F(DatasetRegistryTest, ALoadNobodyHoldsAnyMoreIsCancelled) {
  gate_.Close();
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob), IsOk());
  while (gate_.num_reads() == 0) std::this_thread::yield();
  registry_->ReleaseSession(kAlice.session_id);
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
                ->dataset.num_holders(),
            1);
  registry_->ReleaseSession(kBob.session_id);
  // Other loads of the name wait until it has ended, and begin then.
  const auto given_up = registry_->BeginLoad(NamedSpec("a"), kBob);
  ASSERT_THAT(given_up, IsOk());
  const auto call = registry_->BeginLoad(NamedSpec("a"), kAlice);
  ASSERT_THAT(call, IsOk());
  EXPECT_EQ((*call)->id, 0);
  EXPECT_TRUE(
      (*call)->Await(absl::ZeroDuration())->dataset.progress().is_scanning());
  (*given_up)->Cancel();
  ExpectCancelled(**given_up);
  EXPECT_EQ(registry_->List().size(), 1u);
  gate_.Open();
  const auto info = (*call)->Await(absl::Seconds(30));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->state, DatasetState::kReady);
  EXPECT_EQ(info->dataset.num_holders(), 1);
  EXPECT_EQ(used_bytes(), 100);
  EXPECT_EQ(registry_->Summarize().totals.num_cancelled, 1u);
}

TEST_F(DatasetRegistryTest, UnusedDatasetsMakeRoomLeastRecentlyUsedFirst) {
  num_samples_ = 400;
  LoadAndAwait("old", kAlice);
  LoadAndAwait("new", kAlice);
  registry_->ReleaseSession(kAlice.session_id);
  { ASSERT_THAT(registry_->Use("old", kAlice), IsOk()); }  // now the newer one
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("third"), kBob), IsOk());
  EXPECT_EQ(AwaitSettled("third").state, DatasetState::kReady);
  EXPECT_THAT(registry_->Use("new", kAlice),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(registry_->Use("old", kAlice), IsOk());
}

TEST_F(DatasetRegistryTest, WhatIsHeldOrUsedIsNeverEvicted) {
  num_samples_ = 400;
  LoadAndAwait("held", kAlice);
  LoadAndAwait("used", kBob);
  const auto use = registry_->Use("used", kAlice);
  ASSERT_THAT(use, IsOk());
  registry_->ReleaseSession(kBob.session_id);
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("third"), kBob),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
}

class UnusedTest : public DatasetRegistryTest {
 protected:
  UnusedTest()
      : DatasetRegistryTest({.max_datasets_per_user = 9,
                             .evict_unused_after = absl::Minutes(30),
                             .max_unused_percent = 25,
                             .evict_interval = absl::Milliseconds(1)}) {}
  // Until what the clock and the holds say now has been looked at.
  void AwaitEviction() const {
    const auto num_rounds = [this] {
      return registry_->Summarize().totals.num_eviction_rounds;
    };
    const uint64_t num_before = num_rounds();
    while (num_rounds() < num_before + 2) std::this_thread::yield();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const DatasetInfo& info : registry_->List()) {
      names.push_back(info.spec->name());
    }
    return names;
  }
};

TEST_F(UnusedTest, WhatNothingUsesIsEvictedAfterAWhile) {
  LoadAndAwait("held", kAlice);
  LoadAndAwait("read", kBob);
  LoadAndAwait("unused", kBob);
  ASSERT_THAT(
      testing::Load(*registry_, With(NamedSpec("pinned"), "pin: true"), kRoot),
      IsOk());
  EXPECT_EQ(AwaitSettled("pinned").state, DatasetState::kReady);
  std::optional<DatasetUse> use = *registry_->Use("read", kAlice);
  registry_->ReleaseSession(kBob.session_id);
  registry_->ReleaseSession(kRoot.session_id);
  const MemoryBudget& budget = *devices_->devices()[0].budget;
  EXPECT_EQ(registry_->Summarize().unused[&budget].bytes, 100);
  clock_.Advance(absl::Minutes(29));
  AwaitEviction();
  EXPECT_THAT(Names(), ElementsAre("held", "pinned", "read", "unused"));
  clock_.Advance(absl::Minutes(1));
  AwaitEviction();
  EXPECT_THAT(Names(), ElementsAre("held", "pinned", "read"));
  EXPECT_EQ(registry_->Summarize().totals.num_evicted, 1);
  // The time counts from the end of the last use.
  use.reset();
  clock_.Advance(absl::Minutes(29));
  AwaitEviction();
  EXPECT_THAT(Names(), ElementsAre("held", "pinned", "read"));
  clock_.Advance(absl::Minutes(1));
  AwaitEviction();
  EXPECT_THAT(Names(), ElementsAre("held", "pinned"));
}

TEST_F(UnusedTest, WhatNothingUsesKeepsAShareOfTheMemory) {
  for (const char* const name : {"a", "b", "c", "d"}) {
    LoadAndAwait(name, kAlice);
  }
  const MemoryBudget& budget = *devices_->devices()[0].budget;
  EXPECT_EQ(registry_->Summarize().unused[&budget].max_bytes, 250);
  AwaitEviction();
  EXPECT_THAT(Names(), SizeIs(4));
  // The one that was used last stays longest.
  ASSERT_THAT(registry_->Release("b", kAlice), IsOk());
  clock_.Advance(absl::Seconds(1));
  ASSERT_THAT(registry_->Release("a", kAlice), IsOk());
  ASSERT_THAT(registry_->Release("c", kAlice), IsOk());
  AwaitEviction();
  EXPECT_EQ(registry_->Summarize().unused[&budget].bytes, 200);
  EXPECT_THAT(Names(), ElementsAre("a", "c", "d"));
  while (used_bytes() != 300) std::this_thread::yield();
}

TEST_F(DatasetRegistryTest, WithoutLimitsWhatNothingUsesStays) {
  LoadAndAwait("a", kAlice);
  registry_->ReleaseSession(kAlice.session_id);
  clock_.Advance(absl::Hours(1000));
  EXPECT_THAT(registry_->List(), SizeIs(1));
}

TEST_F(DatasetRegistryTest, UnloadWaitsForFeedsWhenForcedAndRefusesElse) {
  LoadAndAwait("a", kAlice);
  auto use = registry_->Use("a", kAlice);
  ASSERT_THAT(use, IsOk());
  EXPECT_THAT(registry_->Unload("a", false, kAlice),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("1 open feeds")));
  EXPECT_TRUE(use->IsReady());
  {
    const auto unloaded = registry_->Unload("a", true, kAlice);
    ASSERT_THAT(unloaded, IsOk());
    EXPECT_THAT(*unloaded, ElementsAre(use->dataset()));
  }
  EXPECT_FALSE(use->IsReady());
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())->state,
            DatasetState::kUnloading);
  EXPECT_THAT(registry_->Use("a", kAlice),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("being unloaded")));
  EXPECT_EQ(used_bytes(), 100);
  use->Reset();
  EXPECT_THAT(registry_->List(), SizeIs(0));
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(DatasetRegistryTest, UnloadOfASpecIdLeavesAnotherDatasetAlone) {
  LoadAndAwait("a", kAlice);
  const std::string spec_id =
      testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())
          ->dataset.spec_id();
  EXPECT_THAT(registry_->Unload("a", true, kAlice, "of another"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("'a' is another one by now")));
  EXPECT_THAT(registry_->List(), SizeIs(1));
  EXPECT_THAT(registry_->Unload("a", false, kAlice, spec_id), IsOk());
  EXPECT_THAT(registry_->List(), SizeIs(0));
}

TEST_F(DatasetRegistryTest, UnloadCancelsALoad) {
  gate_.Close();
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  EXPECT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  gate_.Open();
  while (!registry_->List().empty()) {
  }
  EXPECT_EQ(used_bytes(), 0);
}

// As an unload that is followed at once by another load, or a push.
TEST_F(DatasetRegistryTest, ALoadThatIsCancelledGivesUpItsNameFirst) {
  gate_.Close();
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  absl::Status pushed;
  std::thread pusher([&] {
    pushed = registry_
                 ->Push(With(NamedSpec("a"), "format: 'push' path: ''"),
                        std::make_unique<FakeSource>(100, 1, "", 7, &gate_),
                        kBob, {.cancel = [] {}})
                 .status();
  });
  gate_.Open();
  pusher.join();
  EXPECT_THAT(pushed, IsOk());
  testing::AwaitLoaded(*registry_, "a", absl::Seconds(30)).IgnoreError();
  EXPECT_THAT(
      registry_->List(),
      ElementsAre(::testing::Field(&DatasetInfo::state, DatasetState::kReady)));
}

TEST_F(DatasetRegistryTest, APushIsHeldAndNamedByItsContent) {
  const auto push = [this](const std::string& name) {
    const v1::DatasetSpec spec =
        With(NamedSpec(name), "format: 'push' path: ''");
    return registry_->Push(
        spec, std::make_unique<FakeSource>(num_samples_, 1, "", fill_, &gate_),
        kAlice, {.cancel = [] {}});
  };
  ASSERT_THAT(push("a"), IsOk());
  const DatasetInfo first = AwaitSettled("a");
  EXPECT_EQ(first.state, DatasetState::kReady);
  EXPECT_EQ(first.dataset.num_holders(), 1);
  EXPECT_EQ(used_bytes(), 100);
  EXPECT_THAT(push("a"), StatusIs(absl::StatusCode::kAlreadyExists,
                                  AllOf(HasSubstr("'a'"), HasSubstr("push"))));
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("'a'")));
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  ASSERT_THAT(push("a"), IsOk());
  EXPECT_EQ(AwaitSettled("a").dataset.spec_id(), first.dataset.spec_id());
  ASSERT_THAT(push("b"), IsOk());
  EXPECT_NE(AwaitSettled("b").dataset.spec_id(), first.dataset.spec_id());
  EXPECT_EQ(AwaitSettled("b").dataset.content_hash(),
            first.dataset.content_hash());
  num_samples_ = 2000;
  EXPECT_THAT(push("c"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("'c'")));
}

TEST_F(DatasetRegistryTest, APushThatFailsLeavesNothing) {
  gate_.FailWith(absl::InvalidArgumentError("it ended after 2 of 64 samples"));
  EXPECT_THAT(
      registry_->Push(With(NamedSpec("a"), "format: 'push' path: ''"),
                      std::make_unique<FakeSource>(64, 1, "", 7, &gate_),
                      kAlice, {.cancel = [] {}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2 of 64")));
  EXPECT_THAT(registry_->List(), SizeIs(0));
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(DatasetRegistryTest, APushNobodyHoldsAnyMoreIsCancelled) {
  gate_.Close();
  absl::Status status;
  std::thread pusher([&] {
    status =
        registry_
            ->Push(With(NamedSpec("a"), "format: 'push' path: ''"),
                   std::make_unique<FakeSource>(100, 1, "", 7, &gate_), kAlice,
                   {.cancel =
                        [this] {
                          gate_.FailWith(absl::UnavailableError(
                              "the stream was cancelled"));
                          gate_.Open();
                        }})
            .status();
  });
  while (gate_.num_reads() == 0) std::this_thread::yield();
  EXPECT_THAT(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration()),
              IsOk());
  registry_->ReleaseSession(kAlice.session_id);
  pusher.join();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("push")));
  EXPECT_THAT(registry_->List(), SizeIs(0));
  EXPECT_EQ(used_bytes(), 0);
}

TEST_F(DatasetRegistryTest, ASamePushIsHashedAndHoldsWhatIsThere) {
  // The first one finds the name free.
  const auto pushed = Push(kAlice, /*accepts_same=*/true);
  ASSERT_THAT(pushed, IsOk());
  const uint64_t num_loads = counters_of_loads();
  EXPECT_EQ(Push(kBob, true), pushed);
  EXPECT_EQ(gate_.num_reads(), 2);
  EXPECT_EQ(counters_of_loads(), num_loads);
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 2);
  EXPECT_EQ(used_bytes(), 100);
  // Of 100 bytes, without them.
  const std::vector<uint8_t> bytes(100, fill_);
  ContentHasher hasher(1, 1);
  hasher.Add(0, bytes);
  digests_ = {hasher.Finish(0)};
  EXPECT_EQ(Push(kBob, true), pushed);
  digests_[0][31] ^= 1;
  EXPECT_THAT(Push(kBob, true), StatusIs(absl::StatusCode::kAlreadyExists,
                                         HasSubstr("other samples")));
  digests_.emplace_back();
  EXPECT_THAT(Push(kBob, true),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("digests: there are 2, expected one")));
  EXPECT_EQ(gate_.num_reads(), 2);
  digests_.clear();
  fill_ = 8;
  EXPECT_THAT(Push(kRoot, true),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("'a' has other samples than these"),
                             HasSubstr("choose another name"),
                             HasSubstr("if_exists='keep'"))));
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 2);
}

TEST_F(DatasetRegistryTest, APushThatDiffersIsRefusedBeforeASampleIsRead) {
  class_names_ = {"cat"};
  v1::DatasetSpec spec = Pushed("private: true");
  SetPretransforms(spec, "image",
                   {Op("resize { size { height: 1 width: 1 } }")});
  ASSERT_THAT(Push(kAlice, false, spec), IsOk());
  const auto expect_refused = [&](const v1::DatasetSpec& wanted,
                                  absl::StatusCode code,
                                  const std::string& words) {
    EXPECT_THAT(Push(kAlice, true, wanted), StatusIs(code, HasSubstr(words)));
  };
  constexpr auto kExists = absl::StatusCode::kAlreadyExists;
  expect_refused(With(spec, "pin: true"), absl::StatusCode::kPermissionDenied,
                 "pin");
  expect_refused(Pushed(), kExists, "'a' was pushed with other pretransforms");
  class_names_ = {"dog"};
  expect_refused(spec, kExists, "'a' was pushed with other class names");
  class_names_ = {"cat"};
  num_samples_ = 99;
  expect_refused(spec, kExists, "'a' has 100 samples, and these are 99");
  EXPECT_EQ(gate_.num_reads(), 1);
  // Of another user's private dataset nothing is told.
  EXPECT_THAT(Push(kBob, true, spec),
              StatusIs(kExists, "the name 'a' is taken; choose another"));
  num_samples_ = 100;
  EXPECT_THAT(Push(kAlice, true, spec), IsOk());
}

TEST_F(DatasetRegistryTest, OtherFieldsAndWhatWasLoadedAreRefused) {
  ASSERT_THAT(Push(kAlice, false), IsOk());
  width_ = 2;
  EXPECT_THAT(Push(kAlice, true),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("'a' has field 'image' as image of uint8 (1, "
                                 "1, 1), and these samples as image of uint8 "
                                 "(1, 2, 1)")));
  EXPECT_THAT(Push(kAlice, true, Pushed("private: true")),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("private: dataset 'a' is loaded")));
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  LoadAndAwait("a", kAlice);
  EXPECT_THAT(Push(kAlice, true),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       HasSubstr("'a' was loaded from '/data/a' (fake)")));
}

TEST_F(DatasetRegistryTest, ASamePushOfANameThatIsPushedWaitsAndIsCompared) {
  gate_.Close();
  absl::StatusOr<std::string> first;
  std::thread pusher([&] { first = Push(kAlice, true); });
  while (gate_.num_reads() == 0) std::this_thread::yield();
  std::atomic<int> num_asked = 0;
  const auto push = [&](int give_up_after) {
    return registry_->Push(
        Pushed(), std::make_unique<FakeSource>(100, 1, "", fill_, &gate_), kBob,
        {.cancel = [] {},
         .receive_digests = [] { return std::vector<Digest>(); },
         .is_given_up =
             [&, give_up_after] { return ++num_asked >= give_up_after; }});
  };
  // Its client leaves.
  EXPECT_THAT(push(1), StatusIs(absl::StatusCode::kCancelled));
  absl::StatusOr<DatasetInfo> second;
  std::thread other([&] { second = push(1'000'000); });
  while (num_asked < 2) std::this_thread::yield();
  gate_.Open();
  pusher.join();
  other.join();
  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->dataset.spec_id(), *first);
  EXPECT_EQ(second->dataset.num_holders(), 2);
  EXPECT_EQ(counters_of_loads(), 1u);
}

// What ends it: the dataset is unloaded, the session ends, or the daemon.
TEST_F(DatasetRegistryTest, APushThatIsComparedEnds) {
  const std::vector<std::function<void()>> ends = {
      [&] { EXPECT_THAT(registry_->Unload("a", false, kAlice), IsOk()); },
      [&] { registry_->ReleaseSession(kBob.session_id); },
      [&] { registry_->CancelLoads(); },
  };
  for (const auto& end : ends) {
    if (registry_->List().empty()) {
      ASSERT_THAT(Push(kAlice, false), IsOk());
    }
    ASSERT_THAT(registry_->Release("a", kAlice), IsOk());
    gate_.Close();
    const int num_reads = gate_.num_reads();
    absl::Status status;
    std::thread pusher([&] { status = Push(kBob, true).status(); });
    while (gate_.num_reads() == num_reads) std::this_thread::yield();
    // It is not held, but cannot be evicted.
    registry_->MakeRoom("cpu", 1000);
    EXPECT_EQ(used_bytes(), 100);
    end();
    gate_.Open();
    pusher.join();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled,
                                 HasSubstr("the push was cancelled")));
  }
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 0);
}

TEST_F(DatasetRegistryTest, APrivateDatasetIsItsUsersAlone) {
  const v1::DatasetSpec spec = With(NamedSpec("a"), "private: true");
  ASSERT_THAT(testing::Load(*registry_, spec, kAlice), IsOk());
  ASSERT_EQ(AwaitSettled("a").state, DatasetState::kReady);
  EXPECT_THAT(registry_->Use("a", kBob),
              StatusIs(absl::StatusCode::kNotFound, Not(HasSubstr("are: a"))));
  EXPECT_THAT(registry_->Hold("a", kBob),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(registry_->Unload("a", false, kBob),
              StatusIs(absl::StatusCode::kNotFound));
  // Its spec is not told, not even by the same load.
  EXPECT_THAT(testing::Load(*registry_, spec, kBob),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("taken"), Not(HasSubstr("/data")))));
  EXPECT_THAT(registry_->Use("a", kAlice), IsOk());
  EXPECT_THAT(registry_->Use("a", kRoot), IsOk());
  EXPECT_THAT(registry_->Unload("a", false, kRoot), IsOk());
}

TEST_F(DatasetRegistryTest, OnlyTheOwnerAndThePrivilegedUnload) {
  LoadAndAwait("a", kAlice);
  LoadAndAwait("b", kAlice);
  EXPECT_THAT(
      registry_->Unload("a", false, kBob),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("uid 1000")));
  EXPECT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  EXPECT_THAT(registry_->Unload("b", false, kRoot), IsOk());
  EXPECT_THAT(registry_->List(), SizeIs(0));
}

TEST_F(DatasetRegistryTest, PinnedDatasetsStayAndOnlyThePrivilegedPin) {
  num_samples_ = 600;
  const v1::DatasetSpec pinned = With(NamedSpec("a"), "pin: true");
  EXPECT_THAT(testing::Load(*registry_, pinned, kAlice),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("pin")));
  ASSERT_THAT(testing::Load(*registry_, pinned, kRoot), IsOk());
  ASSERT_EQ(AwaitSettled("a").state, DatasetState::kReady);
  registry_->ReleaseSession(kRoot.session_id);
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("b"), kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(1));
}

TEST_F(DatasetRegistryTest, ALoadedDatasetBecomesNeitherPinnedNorPrivate) {
  LoadAndAwait("a", kRoot);
  EXPECT_THAT(
      testing::Load(*registry_, With(NamedSpec("a"), "pin: true"), kRoot),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("pin: dataset 'a' is loaded")));
  EXPECT_THAT(
      testing::Load(*registry_, With(NamedSpec("a"), "private: true"), kRoot),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("private: dataset 'a' is loaded")));
  ASSERT_THAT(
      testing::Load(*registry_, With(NamedSpec("b"), "pin: true private: true"),
                    kRoot),
      IsOk());
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("b"), kRoot), IsOk());
}

TEST_F(DatasetRegistryTest, OneUserHasOnlySoManyDatasets) {
  num_samples_ = 1;
  LoadAndAwait("a", kAlice);
  LoadAndAwait("b", kAlice);
  LoadAndAwait("c", kAlice);
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("d"), kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("uid 1000"),
                             HasSubstr("user_limits.max_datasets"))));
  // Attaching is no loading, and another user is another user.
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("d"), kBob), IsOk());
}

TEST_F(DatasetRegistryTest, PretransformsRunOnceAtLoad) {
  num_samples_ = 50;
  v1::DatasetSpec spec = NamedSpec("a");
  SetPretransforms(spec, "image",
                   {Op("to_dtype { dtype: DTYPE_FLOAT32 scale: true }"),
                    Op("normalize { mean: 0.5 std: 0.25 }")});
  ASSERT_THAT(testing::Load(*registry_, spec, kAlice), IsOk());
  const DatasetInfo info = AwaitSettled("a");
  ASSERT_EQ(info.state, DatasetState::kReady) << info.error;
  EXPECT_EQ(info.dataset.fields(0).dtype(), v1::DTYPE_FLOAT32);
  EXPECT_EQ(info.dataset.resident_bytes(), 200);
  const auto use = registry_->Use("a", kAlice);
  ASSERT_THAT(use, IsOk());
  const float* const values =
      reinterpret_cast<const float*>(use->dataset()->field_data(0));
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(values[i], (7.0f / 255.0f - 0.5f) / 0.25f);
  }
}

TEST_F(DatasetRegistryTest, NothingIsEvictedForWhatCannotFit) {
  num_samples_ = 400;
  LoadAndAwait("held", kAlice);
  LoadAndAwait("unused", kBob);
  registry_->ReleaseSession(kBob.session_id);
  num_samples_ = 700;  // 600 at most, if "unused" goes
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("third"), kBob),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(registry_->List(), SizeIs(2));
  registry_->MakeRoom("cpu", 601);
  EXPECT_THAT(registry_->List(), SizeIs(2));
  registry_->MakeRoom("cpu", 200);  // free already
  EXPECT_THAT(registry_->List(), SizeIs(2));
  registry_->MakeRoom("cpu", 600);
  EXPECT_THAT(registry_->List(), SizeIs(1));
}

TEST_F(DatasetRegistryTest, NothingIsEvictedForWhatTheUserMayNotHave) {
  std::vector<ServedDevice> devices(1);
  devices[0].backend = CreateHostBackend({.num_threads = 1});
  devices[0].budget = std::make_unique<MemoryBudget>(
      1000, MemoryBudget::UserLimits{.dataset_bytes = 500});
  registry_.reset();
  devices_ = std::make_unique<DeviceTable>(std::move(devices));
  registry_ = std::make_unique<DatasetRegistry>(
      DatasetRegistry::Options{}, devices_.get(),
      [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
          -> absl::StatusOr<std::unique_ptr<SampleSource>> {
        return std::make_unique<FakeSource>(num_samples_, 1, spec.path(), fill_,
                                            &gate_);
      },
      &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
  num_samples_ = 400;
  LoadAndAwait("a", kAlice);
  LoadAndAwait("b", kRoot);
  registry_->ReleaseSession(kAlice.session_id);
  registry_->ReleaseSession(kRoot.session_id);
  num_samples_ = 600;
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("c"), kBob),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("user_limits.max_dataset_mib")));
  EXPECT_THAT(registry_->List(), SizeIs(2));
}

TEST_F(DatasetRegistryTest, TextsAreCountedAndLimitedByUser) {
  MemoryBudget texts(10'000, {.text_bytes = 2'000}, "text_budget_mib");
  registry_ = std::make_unique<DatasetRegistry>(
      DatasetRegistry::Options{.texts = &texts}, devices_.get(),
      [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
          -> absl::StatusOr<std::unique_ptr<SampleSource>> {
        return std::make_unique<FakeSource>(num_samples_, 1, spec.path(), fill_,
                                            &gate_);
      },
      &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
  v1::DatasetSpec spec = NamedSpec("a");
  SetOption(spec, "o", std::string(1'000, 'o'));
  ASSERT_THAT(testing::Load(*registry_, spec, kAlice), IsOk());
  ASSERT_EQ(AwaitSettled("a").state, DatasetState::kReady);
  EXPECT_LE(texts.FreeBytesFor(MemoryKind::kText, kAlice.uid, {}),
            2'000 - spec.ByteSizeLong());
  spec.set_name("b");
  EXPECT_THAT(testing::Load(*registry_, spec, kAlice),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("the texts of dataset 'b'"),
                             HasSubstr("user_limits.max_text_mib"))));
  EXPECT_EQ(used_bytes(), 100);
  ASSERT_THAT(testing::Load(*registry_, spec, kBob), IsOk());
  AwaitSettled("b");
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  ASSERT_THAT(registry_->Unload("b", false, kBob), IsOk());
  EXPECT_EQ(texts.used_bytes(), 0u);
  SetOption(spec, "o", std::string(65 << 10, 'o'));
  EXPECT_THAT(testing::Load(*registry_, spec, kAlice),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat("spec: has ", spec.ByteSizeLong(),
                                              " bytes"))));
  registry_.reset();
}

TEST_F(DatasetRegistryTest, NotThereAndNotYoursAreOneAnswer) {
  const v1::DatasetSpec spec = With(NamedSpec("secret"), "private: true");
  ASSERT_THAT(testing::Load(*registry_, spec, kAlice), IsOk());
  ASSERT_EQ(AwaitSettled("secret").state, DatasetState::kReady);
  const auto use = registry_->Use("secret", kAlice);
  ASSERT_THAT(use, IsOk());
  const auto answers = [this](const std::string& name) {
    return std::vector<absl::Status>{
        registry_->Hold(name, kBob).status(),
        registry_->Use(name, kBob).status(), registry_->Release(name, kBob),
        registry_->Unload(name, false, kBob).status(),
        registry_->Unload(name, true, kBob).status()};
  };
  const std::vector<absl::Status> there = answers("secret");
  const std::vector<absl::Status> none = answers("absent");
  for (size_t i = 0; i < there.size(); ++i) {
    EXPECT_THAT(there[i], StatusIs(absl::StatusCode::kNotFound,
                                   "no dataset 'secret'; there is none"))
        << i;
    EXPECT_THAT(none[i], StatusIs(absl::StatusCode::kNotFound,
                                  "no dataset 'absent'; there is none"))
        << i;
  }
  EXPECT_THAT(registry_->List(kBob), SizeIs(0));
  EXPECT_THAT(registry_->List(kAlice), SizeIs(1));
  EXPECT_THAT(registry_->List(kRoot), SizeIs(1));
  EXPECT_TRUE(use->IsReady());
}

TEST_F(DatasetRegistryTest, AForcedUnloadEndsNoOtherUsersFeeds) {
  LoadAndAwait("a", kAlice);
  auto own = registry_->Use("a", kAlice);
  {
    const auto others = registry_->Use("a", kBob);
    ASSERT_THAT(others, IsOk());
    EXPECT_THAT(registry_->Unload("a", true, kAlice),
                StatusIs(absl::StatusCode::kPermissionDenied,
                         HasSubstr("open feeds of user 1001")));
    EXPECT_TRUE(others->IsReady());
  }
  EXPECT_THAT(registry_->Unload("a", true, kAlice), IsOk());
  EXPECT_FALSE(own->IsReady());
  own->Reset();
}

TEST_F(DatasetRegistryTest, ACallMeansOneDatasetAndNotItsName) {
  const auto first = registry_->BeginLoad(NamedSpec("a"), kAlice);
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ((*first)->Await(absl::Seconds(30))->state, DatasetState::kReady);
  // Attached to, it is the same.
  EXPECT_EQ((*testing::Load(*registry_, NamedSpec("a"), kBob))->id,
            (*first)->id);
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  const v1::DatasetSpec secret = With(NamedSpec("a"), "private: true");
  ASSERT_THAT(testing::Load(*registry_, secret, kBob), IsOk());
  AwaitSettled("a");
  EXPECT_THAT((*first)->Await(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("unloaded")));
}

TEST_F(DatasetRegistryTest, TheListHasPages) {
  num_samples_ = 1;
  LoadAndAwait("a", kAlice);
  LoadAndAwait("c", kAlice);
  LoadAndAwait("d", kBob);
  BeginEndless("b", kBob);
  const auto names = [&](const std::string& after, size_t limit) {
    std::string text;
    for (const DatasetInfo& info : registry_->List(kAlice, after, limit)) {
      text += info.spec->name();
    }
    return text;
  };
  EXPECT_EQ(names("", 100), "abcd");
  EXPECT_EQ(names("", 2), "ab");
  EXPECT_EQ(names("b", 1), "c");
  EXPECT_EQ(names("c", 2), "d");
  EXPECT_EQ(names("d", 2), "");
  EXPECT_EQ(registry_->Summarize().num_datasets, 4u);
}

}  // namespace
}  // namespace datasetd
