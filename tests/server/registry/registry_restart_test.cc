// The registry with a cache, and what it loads again for an earlier daemon.

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cache/dataset_cache.h"
#include "server/cache/restore_journal.h"
#include "server/load/load_request.h"
#include "server/registry/dataset_registry.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/fault_plan.h"
#include "tests/testing/faulty_file_system.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::FaultPlan;
using ::datasetd::testing::FaultyStoreDirectory;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SourceGate;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::datasetd::testing::With;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum absl::StatusCode;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr Caller kAlice = {.session_id = 1, .uid = 1000, .pid = 10};
constexpr Caller kBob = {.session_id = 2, .uid = 1001, .pid = 20};
constexpr Caller kEarlierAlice = {.session_id = Caller::kEarlierSession,
                                  .uid = 1000};

class RegistryRestartTest : public ::testing::Test {
 protected:
  RegistryRestartTest() { Restart(); }
  ~RegistryRestartTest() override {
    gate_.Open();
    hanging_.Open();
    Stop();
  }

  void Stop() {
    registry_.reset();
    cache_.reset();
    devices_.reset();
  }
  void Restart(int64_t budget = 1000) {
    Stop();
    std::vector<ServedDevice> devices(1);
    devices[0].backend = CreateHostBackend({.num_threads = 1});
    devices[0].budget = std::make_unique<MemoryBudget>(budget);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    auto directory = OpenStoreDirectory(path_);
    ASSERT_THAT(directory, IsOk());
    if (disk_ != nullptr) {
      directory =
          std::make_unique<FaultyStoreDirectory>(*std::move(directory), disk_);
    }
    auto cache = DatasetCache::Open(
        *std::move(directory), {.total_bytes = 1 << 20},
        [](const char*, uint32_t, const std::string&, const absl::Status&) {});
    ASSERT_THAT(cache, IsOk());
    cache_ = *std::move(cache);
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{.max_datasets_per_user = 2,
                                 .cache = cache_.get(),
                                 .journal = journal_,
                                 .max_suspect_wait = max_suspect_wait_},
        devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          if (spec.path() == "/data/missing") {
            return absl::NotFoundError("/data/missing: no such file");
          }
          (spec.path() == "/data/hangs" ? hanging_ : opened_)
              .Pass(0)
              .IgnoreError();
          return std::make_unique<FakeSource>(100, 1, spec.path(), fill_,
                                              &gate_);
        },
        &clock_,
        [this](DatasetEvent event, const DatasetInfo& info, const Caller&) {
          if (observer_) observer_(event);
          if (event == DatasetEvent::kUnloadAsked && on_unload_asked_) {
            on_unload_asked_(info);
          }
        });
  }

  DatasetInfo AwaitSettled(const std::string& name) {
    const auto info = testing::AwaitLoaded(*registry_, name, kLong);
    EXPECT_THAT(info, IsOk());
    return *info;
  }
  void ExpectReady(const std::string& name) {
    const DatasetInfo info = AwaitSettled(name);
    EXPECT_EQ(info.state, DatasetState::kReady) << name << ": " << info.error;
  }
  void LoadReady(const std::string& name, const Caller& caller) {
    ASSERT_THAT(testing::Load(*registry_, NamedSpec(name), caller), IsOk());
    ExpectReady(name);
  }
  void LoadAndStore(const std::string& name) {
    LoadReady(name, kAlice);
    ASSERT_TRUE(cache_->AwaitIdle(kLong));
    ASSERT_GT(cache_->counters().num_stored, 0u);
  }
  void Restore(std::vector<v1::DatasetSpec> specs,
               const std::string& content_hash = "") {
    std::vector<RestoredDataset> restored;
    for (v1::DatasetSpec& spec : specs) {
      restored.push_back({.spec = std::move(spec),
                          .owner = kEarlierAlice,
                          .content_hash = content_hash});
    }
    registry_->Restore(std::move(restored));
  }
  // Alice's "a", which an earlier daemon could not load.
  void RestoreRefused() {
    registry_->Restore(
        {{.spec = NamedSpec("a"),
          .owner = kEarlierAlice,
          .refusal = absl::FailedPreconditionError("too often")}});
  }
  static v1::DatasetSpec Pushed(const std::string& name) {
    return With(NamedSpec(name), "format: 'push' path: ''");
  }
  // Returns its content hash.
  std::string PushAndStore(const std::string& name, const Caller& caller) {
    EXPECT_THAT(
        registry_->Push(Pushed(name),
                        std::make_unique<FakeSource>(100, 1, "", fill_, &gate_),
                        caller, {.cancel = [] {}}),
        IsOk());
    EXPECT_TRUE(cache_->AwaitIdle(kLong));
    return AwaitSettled(name).dataset.content_hash();
  }
  void DamageCacheFile() {
    std::fstream file(CacheFile(),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096 + 50);
    file.put('\0');
  }
  std::string CacheFile() {
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      if (file.path().extension() == ".cache") return file.path();
    }
    return "";
  }
  uint64_t used_bytes() const {
    return devices_->devices()[0].budget->used_bytes();
  }

  TempDir parent_;
  const std::string path_ = parent_.File("cache");
  SourceGate gate_;
  SourceGate opened_;
  SourceGate hanging_;  // the files of /data/hangs
  // Another dataset of the name "a".
  const v1::DatasetSpec other_ = With(NamedSpec("a"), "path: '/data/other'");
  absl::Duration max_suspect_wait_ = kLong;
  FakeClock clock_;
  uint8_t fill_ = 7;
  std::function<void(DatasetEvent event)> observer_;
  std::function<void(const DatasetInfo& info)> on_unload_asked_;
  RestoreJournal* journal_ = nullptr;
  FaultPlan* disk_ = nullptr;  // of the next Restart
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetCache> cache_;
  std::unique_ptr<DatasetRegistry> registry_;
};

// An observer that sees READY and waits for the cache finds the samples there.
TEST_F(RegistryRestartTest, TheCacheHasTheJobBeforeAnybodyIsTold) {
  uint64_t num_stored = 0;
  observer_ = [&](DatasetEvent event) {
    if (event != DatasetEvent::kReady) return;
    EXPECT_TRUE(cache_->AwaitIdle(kLong));
    num_stored = cache_->counters().num_stored;
  };
  LoadAndStore("a");
  EXPECT_EQ(num_stored, 1u);
}

TEST_F(RegistryRestartTest, AWarmLoadReadsNoSourceAndGivesTheSame) {
  LoadAndStore("a");
  const DatasetInfo cold = AwaitSettled("a");
  EXPECT_EQ(gate_.num_reads(), 1);
  Restart();
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob), IsOk());
  const DatasetInfo warm = AwaitSettled("a");
  EXPECT_EQ(gate_.num_reads(), 1);
  EXPECT_EQ(warm.state, DatasetState::kReady);
  EXPECT_EQ(warm.dataset.spec_id(), cold.dataset.spec_id());
  EXPECT_EQ(warm.dataset.content_hash(), cold.dataset.content_hash());
  EXPECT_EQ(warm.dataset.num_samples(), 100);
  EXPECT_EQ(warm.dataset.fields(0).DebugString(),
            cold.dataset.fields(0).DebugString());
  EXPECT_EQ(warm.dataset.progress().num_samples_loaded(), 100);
  EXPECT_EQ(used_bytes(), 100u);
  const auto use = registry_->Use("a", kBob);
  ASSERT_THAT(use, IsOk());
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(use->dataset()->field_data(0)[i], 7);
  }
  EXPECT_EQ(cache_->counters().num_hits, 1u);
  EXPECT_EQ(cache_->counters().num_misses, 0u);
}

TEST_F(RegistryRestartTest, AnotherSpecIsAMiss) {
  LoadAndStore("a");
  Restart();
  const v1::DatasetSpec spec = With(NamedSpec("a"), "split: 'test'");
  ASSERT_THAT(testing::Load(*registry_, spec, kAlice), IsOk());
  AwaitSettled("a");
  EXPECT_EQ(gate_.num_reads(), 2);
  EXPECT_EQ(cache_->counters().num_misses, 1u);
}

TEST_F(RegistryRestartTest, WithADamagedEntryTheSourceIsRead) {
  LoadAndStore("a");
  const std::string hash = AwaitSettled("a").dataset.content_hash();
  Stop();
  DamageCacheFile();
  Restart();
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  const DatasetInfo info = AwaitSettled("a");
  EXPECT_EQ(info.state, DatasetState::kReady);
  EXPECT_EQ(info.dataset.content_hash(), hash);
  EXPECT_EQ(info.dataset.progress().num_samples_loaded(), 100);
  EXPECT_EQ(info.dataset.progress().loaded_bytes(), 100);
  EXPECT_EQ(gate_.num_reads(), 2);
  EXPECT_EQ(used_bytes(), 100u);
  EXPECT_EQ(cache_->counters().num_errors, 1u);
  EXPECT_EQ(cache_->counters().num_hits, 0u);
  // And stored again.
  while (cache_->counters().num_stored == 0) {
    ASSERT_TRUE(cache_->AwaitIdle(kLong));
  }
  EXPECT_NE(CacheFile(), "");
}

// Writes an entry that says of itself what is not so.
void Forge(const std::string& path, const std::string& name,
           const std::function<void(CacheHeader&)>& change) {
  CacheHeader header;
  {
    auto directory = OpenStoreDirectory(path);
    ASSERT_THAT(directory, IsOk());
    auto file = (*directory)->Open(name);
    ASSERT_THAT(file, IsOk());
    header = *ReadCacheHeader(**file);
    change(header);
    const auto layout = LayOutCacheEntry(header);
    ASSERT_THAT(layout, IsOk());
    std::string data = EncodeCacheHeader(header);
    data.resize(static_cast<size_t>(layout->file_bytes), 7);
    ASSERT_THAT(WriteStored(**directory, name,
                            absl::MakeConstSpan(
                                reinterpret_cast<const uint8_t*>(data.data()),
                                data.size())),
                IsOk());
  }
}

// The read calls of the cache's disk: four at its start, three to find an
// entry, and then its samples.
constexpr int64_t kFindsEntry = 5;
constexpr int64_t kReadsSamples = 8;

TEST_F(RegistryRestartTest, WhenItsDiskFailsAnEntryStaysAndTheSourceIsRead) {
  LoadAndStore("a");
  for (const int64_t call : {kFindsEntry, kReadsSamples}) {
    const int num_reads = gate_.num_reads();
    FaultPlan disk(testing::kFaultRead, call);
    disk_ = &disk;
    Restart();
    disk_ = nullptr;
    LoadReady("a", kAlice);
    EXPECT_EQ(gate_.num_reads(), num_reads + 1);
    EXPECT_EQ(cache_->counters().num_errors, 1u);
    Restart();
    LoadReady("a", kAlice);
    EXPECT_EQ(gate_.num_reads(), num_reads + 1);
  }
}

TEST_F(RegistryRestartTest, APushWhoseDiskFailsComesBackLater) {
  const std::string content_hash = PushAndStore("a", kAlice);
  for (const auto& [call, code, text] :
       {std::tuple(kFindsEntry, kNotFound, "or cannot be read there"),
        std::tuple(kReadsSamples, kUnavailable, "injected fault")}) {
    FaultPlan disk(testing::kFaultRead, call);
    disk_ = &disk;
    Restart();
    disk_ = nullptr;
    Restore({Pushed("a")}, content_hash);
    const DatasetInfo failed = AwaitSettled("a");
    EXPECT_EQ(failed.state, DatasetState::kFailed);
    EXPECT_THAT(failed.error, StatusIs(code, HasSubstr(text)));
    EXPECT_EQ(cache_->counters().num_errors, 1u);
    Restart();
    Restore({Pushed("a")}, content_hash);
    ExpectReady("a");
  }
}

TEST_F(RegistryRestartTest, AnEntryThatLiesIsNotBelieved) {
  const std::vector<std::function<void(CacheHeader&)>> lies = {
      [](CacheHeader& h) { h.content_hash = std::string(64, '0'); },
      [](CacheHeader& h) { h.fields[0].name = "mask"; },
      [](CacheHeader& h) {
        h.fields[0].shape = {1, 2, 1};
      },
      [](CacheHeader& h) {
        h.fields.push_back({.name = "more"}), h.checksums.push_back({0});
      },
      [](CacheHeader& h) { h.num_samples = 200; },
  };
  LoadAndStore("a");
  for (size_t i = 0; i < lies.size(); ++i) {
    Stop();
    Forge(path_, std::filesystem::path(CacheFile()).filename(), lies[i]);
    Restart();
    ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
    const DatasetInfo info = AwaitSettled("a");
    EXPECT_EQ(info.state, DatasetState::kReady) << i;
    EXPECT_EQ(gate_.num_reads(), static_cast<int>(i) + 2);
    EXPECT_EQ(cache_->counters().num_errors, 1u) << i;
    EXPECT_EQ(used_bytes(), 100u);
    while (cache_->counters().num_stored == 0) {
      ASSERT_TRUE(cache_->AwaitIdle(kLong));
    }
  }
}

TEST_F(RegistryRestartTest, WhatAnEarlierDaemonHadComesBackHeldByNobody) {
  Restore({NamedSpec("a"), NamedSpec("b")});
  for (const char* name : {"a", "b"}) {
    const DatasetInfo info = AwaitSettled(name);
    EXPECT_EQ(info.state, DatasetState::kReady) << info.error;
    EXPECT_EQ(info.dataset.num_holders(), 0);
    EXPECT_EQ(info.owner.uid, 1000u);
    EXPECT_EQ(info.owner.session_id, Caller::kEarlierSession);
  }
  // They count as the user's.
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("c"), kAlice),
              StatusIs(kResourceExhausted, HasSubstr("uid 1000")));
  EXPECT_THAT(registry_->Unload("a", false, kBob), StatusIs(kPermissionDenied));
  EXPECT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  EXPECT_EQ(used_bytes(), 100u);
}

TEST_F(RegistryRestartTest, WhatCameBackMakesRoomUnlessItIsPinned) {
  Restart(/*budget=*/250);
  const v1::DatasetSpec pinned = With(NamedSpec("a"), "pin: true");
  registry_->Restore({{.spec = pinned,
                       .owner = {.session_id = Caller::kEarlierSession,
                                 .is_privileged = true}},
                      {.spec = NamedSpec("b"), .owner = kEarlierAlice}});
  ExpectReady("a");
  ExpectReady("b");
  LoadReady("c", kBob);
  EXPECT_THAT(registry_->Hold("b", kAlice), StatusIs(kNotFound));
  EXPECT_TRUE(AwaitSettled("a").spec->pin());
}

TEST_F(RegistryRestartTest, WhatComesBackEvictsNothingThatCameBack) {
  Restart(/*budget=*/150);
  registry_->Restore(
      {{.spec = NamedSpec("a"), .owner = kEarlierAlice},
       {.spec = NamedSpec("b"), .owner = kEarlierAlice, .is_suspect = true}});
  EXPECT_THAT(AwaitSettled("b").error,
              StatusIs(kResourceExhausted, HasSubstr("dataset 'b'")));
  ExpectReady("a");
  // Once it has been used, it goes when nobody uses it.
  ASSERT_THAT(registry_->Hold("a", kAlice), IsOk());
  ASSERT_THAT(registry_->Release("a", kAlice), IsOk());
  LoadReady("b", kAlice);
}

TEST_F(RegistryRestartTest, ALowerLimitLeavesTheFirstOnes) {
  Restore({NamedSpec("a"), NamedSpec("b"), NamedSpec("c")});
  ExpectReady("a");
  ExpectReady("b");
  EXPECT_THAT(AwaitSettled("c").error,
              StatusIs(kResourceExhausted, HasSubstr("uid 1000")));
}

TEST_F(RegistryRestartTest, WhatCannotComeBackIsFailedAndSaysWhy) {
  const v1::DatasetSpec pinned =
      With(NamedSpec("a"), "pin: true");  // its user may not
  Restore({NamedSpec("missing"), pinned, NamedSpec("b")});
  EXPECT_THAT(AwaitSettled("missing").error,
              StatusIs(kNotFound, HasSubstr("no such file")));
  EXPECT_THAT(AwaitSettled("a").error,
              StatusIs(kPermissionDenied, HasSubstr("pin")));
  // The two that failed count no more than other failures do.
  EXPECT_THAT(AwaitSettled("b").error,
              StatusIs(kResourceExhausted, HasSubstr("uid 1000")));
  EXPECT_EQ(used_bytes(), 0u);
  ASSERT_THAT(registry_->Unload("missing", false, kAlice), IsOk());
  EXPECT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  ExpectReady("a");
}

TEST_F(RegistryRestartTest, AClientThatComesEarlyAttaches) {
  opened_.Close();
  Restore({NamedSpec("b"), NamedSpec("a")});
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())->state,
            DatasetState::kLoading);
  EXPECT_THAT(registry_->Use("a", kAlice),
              StatusIs(kFailedPrecondition, HasSubstr("still loading")));
  absl::Status loaded;
  std::thread early([&] {
    loaded = testing::Load(*registry_, NamedSpec("a"), kBob).status();
  });
  opened_.Open();
  early.join();
  EXPECT_THAT(loaded, IsOk());
  ExpectReady("a");
  ExpectReady("b");
  EXPECT_EQ(gate_.num_reads(), 2);
  EXPECT_EQ(AwaitSettled("a").owner.uid, 1000u);
  EXPECT_EQ(AwaitSettled("a").dataset.num_holders(), 1);
}

TEST_F(RegistryRestartTest, AnEarlyClientThatLeavesDoesNotCancelIt) {
  gate_.Close();
  Restore({NamedSpec("a")});
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob), IsOk());
  registry_->ReleaseSession(kBob.session_id);
  gate_.Open();
  ExpectReady("a");
}

TEST_F(RegistryRestartTest, UnloadCancelsWhatIsComingBack) {
  opened_.Close();
  Restore({NamedSpec("a")});
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  opened_.Open();
  while (!registry_->List().empty()) {
  }
  EXPECT_EQ(used_bytes(), 0u);
}

TEST_F(RegistryRestartTest, ATakenNameStaysWhoseItIs) {
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), Caller()), IsOk());
  Restore({NamedSpec("a")});
  EXPECT_EQ(AwaitSettled("a").owner.session_id, 0u);
}

TEST_F(RegistryRestartTest, APushedDatasetComesBackFromTheCacheAlone) {
  const std::string hash = PushAndStore("p", kAlice);
  Restart();
  EXPECT_THAT(testing::Load(*registry_, Pushed("p"), kAlice),
              StatusIs(kInvalidArgument, HasSubstr("push it")));
  Restore({Pushed("p")}, hash);
  const DatasetInfo info = AwaitSettled("p");
  EXPECT_EQ(info.state, DatasetState::kReady) << info.error;
  EXPECT_EQ(info.dataset.content_hash(), hash);
  EXPECT_EQ(info.dataset.spec_id(), PushedSpecId("p", hash, kAlice.uid));
  EXPECT_EQ(gate_.num_reads(), 1);
}

TEST_F(RegistryRestartTest, ARestoredPushIsComparedWithTheNextOne) {
  const std::string hash = PushAndStore("p", kAlice);
  Restart();
  Restore({Pushed("p")}, hash);
  AwaitSettled("p");
  const auto push = [&] {
    auto source = std::make_unique<FakeSource>(100, 1, "", fill_, &gate_);
    return registry_->Push(
        Pushed("p"), std::move(source), kAlice,
        {.cancel = [] {},
         .receive_digests = [] { return std::vector<Digest>(); }});
  };
  EXPECT_THAT(push(), IsOk());
  EXPECT_EQ(AwaitSettled("p").dataset.num_holders(), 1);
  ++fill_;
  EXPECT_THAT(push(), StatusIs(absl::StatusCode::kAlreadyExists,
                               HasSubstr("other samples")));
}

// Even if the hashes of the samples are the same.
TEST_F(RegistryRestartTest, APushIsNeverAnsweredWithAnotherUsersSamples) {
  const std::string hash = PushAndStore("p", kBob);
  const std::string file = CacheFile();
  for (const char* const name : {"p", "q"}) {
    Restart();
    Restore({Pushed(name)}, hash);  // Alice's
    EXPECT_THAT(AwaitSettled(name).error,
                StatusIs(kNotFound, HasSubstr("push")))
        << name;
  }
  // Neither where the entry has the place of hers.
  Stop();
  const std::string id = PushedSpecId("p", hash, kAlice.uid);
  std::filesystem::rename(file, path_ + "/" + id + ".cache");
  Forge(path_, id + ".cache", [&](CacheHeader& h) { h.spec_id = id; });
  Restart();
  ASSERT_EQ(cache_->num_entries(), 1);
  Restore({Pushed("p")}, hash);
  EXPECT_THAT(AwaitSettled("p").error, StatusIs(kNotFound, HasSubstr("push")));
}

TEST_F(RegistryRestartTest, APushThatHashesToSomethingElseIsNotBelieved) {
  const std::string hash = PushAndStore("p", kAlice);
  const std::string file = CacheFile();
  const std::string other(64, 'c');
  const std::string id = PushedSpecId("p", other, kAlice.uid);
  Stop();
  std::filesystem::rename(file, path_ + "/" + id + ".cache");
  Forge(path_, id + ".cache", [&](CacheHeader& h) {
    h.spec_id = id;
    h.content_hash = other;
  });
  Restart();
  Restore({Pushed("p")}, other);
  EXPECT_THAT(AwaitSettled("p").error, StatusIs(kDataLoss));
}

// Else the same push would find it in its way.
TEST_F(RegistryRestartTest, ADamagedPushIsRemovedAndCanBePushedAgain) {
  const std::string hash = PushAndStore("p", kAlice);
  Stop();
  DamageCacheFile();
  Restart();
  Restore({Pushed("p")}, hash);
  EXPECT_THAT(AwaitSettled("p").error, StatusIs(kDataLoss));
  EXPECT_EQ(cache_->num_entries(), 0);
  EXPECT_EQ(CacheFile(), "");
  ASSERT_THAT(registry_->Unload("p", false, kAlice), IsOk());
  EXPECT_EQ(PushAndStore("p", kAlice), hash);
  Restart();
  Restore({Pushed("p")}, hash);
  ExpectReady("p");
}

class RecordingJournal : public RestoreJournal {
 public:
  void BeginRead(const std::string& name) override { Add("+" + name); }
  void EndRead(const std::string& name) override { Add("-" + name); }
  void EndRestore(const std::string& name) override { Add("." + name); }

  std::string events() const {
    MutexLock lock(&mutex_);
    return events_;
  }

 private:
  void Add(const std::string& event) {
    MutexLock lock(&mutex_);
    events_ += event;
  }

  mutable Mutex mutex_;
  std::string events_;
};

TEST_F(RegistryRestartTest, WhatIsReadIsNotedAndASuspectIsReadAlone) {
  RecordingJournal journal;
  journal_ = &journal;
  Restart();
  gate_.Close();
  registry_->Restore(
      {{.spec = NamedSpec("a"), .owner = kEarlierAlice, .is_suspect = true},
       {.spec = NamedSpec("b"), .owner = kEarlierAlice}});
  while (journal.events() != "+b-b+b") std::this_thread::yield();
  EXPECT_EQ(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration())->state,
            DatasetState::kLoading);
  gate_.Open();
  ExpectReady("a");
  ExpectReady("b");
  EXPECT_EQ(journal.events(), "+b-b+b-b.b+a-a+a-a.a");
  // A load that is no restore is none of the journal's business.
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  AwaitSettled("a");
  EXPECT_EQ(journal.events(), "+b-b+b-b.b+a-a+a-a.a");
  Stop();
}

TEST_F(RegistryRestartTest, ARestoreThatFailsOrIsStoppedHasEnded) {
  RecordingJournal journal;
  journal_ = &journal;
  Restart();
  Restore({NamedSpec("missing")});
  AwaitSettled("missing");
  while (journal.events() != "+missing-missing.missing") {
    std::this_thread::yield();
  }
  Restart();
  gate_.Close();
  Restore({NamedSpec("a")});
  while (gate_.num_reads() == 0) std::this_thread::yield();
  std::thread stopper([this] { Stop(); });
  gate_.Open();
  stopper.join();
  EXPECT_EQ(journal.events(), "+missing-missing.missing+a-a+a-a.a");
}

TEST_F(RegistryRestartTest, WhatFailedIsKeptForItsUser) {
  RestoreRefused();
  const auto is_kept =
      StatusIs(kAlreadyExists,
               AllOf(HasSubstr("'a' of uid 1000"), HasSubstr("unloaded")));
  EXPECT_THAT(testing::Load(*registry_, other_, kBob), is_kept);
  EXPECT_THAT(
      registry_->Push(Pushed("a"),
                      std::make_unique<FakeSource>(100, 1, "", 7, &gate_), kBob,
                      {.cancel = [] {}}),
      is_kept);
  EXPECT_EQ(AwaitSettled("a").owner.uid, 1000u);
  // Also after many failures of hers.
  for (int i = 0; i < 70; ++i) {
    const std::string name = absl::StrCat("missing", i);
    testing::Load(*registry_, With(NamedSpec(name), "path: '/data/missing'"),
                  kAlice)
        .IgnoreError();
  }
  EXPECT_EQ(AwaitSettled("a").state, DatasetState::kFailed);
  // The same dataset is for everybody, and its user may have another.
  LoadReady("a", kBob);
}

TEST_F(RegistryRestartTest, TheNameStaysKeptWhileSomebodyLoadsTheSame) {
  RestoreRefused();
  const auto is_kept = StatusIs(kAlreadyExists, HasSubstr("'a' of uid 1000"));
  // Given up once it is planned, or while its files are looked for.
  for (SourceGate* const gate : {&gate_, &opened_}) {
    gate->Close();
    const int num_before = gate->num_reads();
    const auto call = registry_->BeginLoad(NamedSpec("a"), kBob);
    ASSERT_THAT(call, IsOk());
    while (gate->num_reads() == num_before) std::this_thread::yield();
    (*call)->Cancel();
    gate->Open();
    testing::AwaitLoaded(*registry_, "a", kLong).IgnoreError();
    EXPECT_EQ(AwaitSettled("a").owner.uid, 1000u);
    EXPECT_THAT(AwaitSettled("a").error,
                StatusIs(kFailedPrecondition, "too often"));
    EXPECT_THAT(testing::Load(*registry_, other_, kBob), is_kept);
  }
  // Alice tries again, and it fails when its samples are read.
  gate_.FailWith(absl::DataLossError("torn"));
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  EXPECT_THAT(AwaitSettled("a").error, StatusIs(kDataLoss, HasSubstr("torn")));
  EXPECT_THAT(testing::Load(*registry_, other_, kBob), is_kept);
}

TEST_F(RegistryRestartTest, AFailureIsForgottenWhenItsUserUnloadsTheNextTry) {
  // Unloaded once it is planned, or while its files are looked for.
  for (SourceGate* const gate : {&gate_, &opened_}) {
    Restart();
    RestoreRefused();
    gate->Close();
    const int num_before = gate->num_reads();
    ASSERT_THAT(registry_->BeginLoad(NamedSpec("a"), kAlice), IsOk());
    while (gate->num_reads() == num_before) std::this_thread::yield();
    ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
    gate->Open();
    testing::AwaitLoaded(*registry_, "a", kLong).IgnoreError();
    EXPECT_THAT(registry_->Hold("a", kAlice), StatusIs(kNotFound));
    EXPECT_THAT(testing::Load(*registry_, other_, kBob), IsOk());
  }
}

TEST_F(RegistryRestartTest, AFailureStaysWhenAnotherUserUnloadsTheNextTry) {
  RestoreRefused();
  gate_.Close();
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob), IsOk());
  ASSERT_THAT(registry_->Unload("a", false, kBob), IsOk());
  gate_.Open();
  testing::AwaitLoaded(*registry_, "a", kLong).IgnoreError();
  EXPECT_EQ(AwaitSettled("a").owner.uid, 1000u);
  EXPECT_THAT(testing::Load(*registry_, other_, kBob),
              StatusIs(kAlreadyExists, HasSubstr("'a' of uid 1000")));
}

TEST_F(RegistryRestartTest, AFailureStaysWhenAnotherUserUnloadsAFailedTry) {
  const auto is_kept = StatusIs(kAlreadyExists, HasSubstr("'a' of uid 1000"));
  gate_.FailWith(absl::DataLossError("torn"));
  for (const Caller& unloads : {kBob, kAlice}) {
    Restart();
    RestoreRefused();
    // Tried twice, and failed when its samples were read.
    for (int i = 0; i < 2; ++i) {
      ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kBob), IsOk());
      EXPECT_THAT(AwaitSettled("a").error,
                  StatusIs(kDataLoss, HasSubstr("torn")));
      EXPECT_EQ(AwaitSettled("a").owner.uid, 1001u);
    }
    std::vector<std::string> asked;
    on_unload_asked_ = [&](const DatasetInfo& info) {
      asked.push_back(absl::StrCat(info.spec->name(), info.owner.uid));
    };
    ASSERT_THAT(registry_->Unload("a", false, unloads), IsOk());
    on_unload_asked_ = nullptr;
    if (unloads.uid == kBob.uid) {
      EXPECT_THAT(asked, ElementsAre("a1001"));
      EXPECT_THAT(AwaitSettled("a").error,
                  StatusIs(kFailedPrecondition, "too often"));
      EXPECT_THAT(testing::Load(*registry_, other_, kBob), is_kept);
    } else {
      EXPECT_THAT(asked, ElementsAre("a1001", "a1000"));
      EXPECT_THAT(registry_->Hold("a", kAlice), StatusIs(kNotFound));
    }
  }
}

TEST_F(RegistryRestartTest, FilesThatHangHoldNoOthersBack) {
  opened_.Close();
  registry_->Restore({{.spec = NamedSpec("a"), .owner = kEarlierAlice},
                      {.spec = NamedSpec("b"), .owner = kEarlierAlice}});
  // The second does not wait for the first.
  while (opened_.num_reads() < 2) std::this_thread::yield();
  opened_.Open();
  ExpectReady("a");
  ExpectReady("b");
}

TEST_F(RegistryRestartTest, ASuspectWhoseFilesHangHoldsNoOthersBack) {
  max_suspect_wait_ = absl::ZeroDuration();
  Restart();
  hanging_.Close();
  const Caller earlier_bob = {.session_id = Caller::kEarlierSession,
                              .uid = kBob.uid};
  registry_->Restore(
      {{.spec = NamedSpec("hangs"), .owner = kEarlierAlice, .is_suspect = true},
       {.spec = NamedSpec("a"), .owner = kEarlierAlice, .is_suspect = true},
       {.spec = NamedSpec("b"), .owner = earlier_bob, .is_suspect = true}});
  ExpectReady("b");
  ExpectReady("a");
  EXPECT_EQ(
      testing::AwaitLoaded(*registry_, "hangs", absl::ZeroDuration())->state,
      DatasetState::kLoading);
}

TEST_F(RegistryRestartTest, ASuspectThatWaitsCanBeUnloadedAtOnce) {
  hanging_.Close();
  registry_->Restore(
      {{.spec = NamedSpec("hangs"), .owner = kEarlierAlice},
       {.spec = NamedSpec("a"), .owner = kEarlierAlice, .is_suspect = true}});
  while (hanging_.num_reads() == 0) std::this_thread::yield();
  const auto early = registry_->BeginLoad(NamedSpec("a"), kBob);
  ASSERT_THAT(early, IsOk());
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  EXPECT_THAT(testing::AwaitLoaded(*registry_, "a", absl::ZeroDuration()),
              StatusIs(kNotFound));
  EXPECT_THAT((*early)->Await(kLong),
              StatusIs(kCancelled, HasSubstr("the load was cancelled")));
  LoadReady("a", kAlice);
}

TEST_F(RegistryRestartTest, WhatIsRefusedIsFailedAndCanBeLoadedAgain) {
  RestoreRefused();
  EXPECT_THAT(AwaitSettled("a").error,
              StatusIs(kFailedPrecondition, "too often"));
  EXPECT_EQ(gate_.num_reads(), 0);
  LoadReady("a", kAlice);
}

TEST_F(RegistryRestartTest, APushedDatasetThatTheCacheHasNotIsFailed) {
  Restore({Pushed("p")}, std::string(64, 'e'));
  EXPECT_THAT(AwaitSettled("p").error,
              StatusIs(kNotFound, AllOf(HasSubstr("eeee"), HasSubstr("push"))));
}

TEST_F(RegistryRestartTest, AnEntryBeingWrittenHoldsNoMemory) {
  ASSERT_THAT(testing::Load(*registry_, NamedSpec("a"), kAlice), IsOk());
  AwaitSettled("a");
  ASSERT_THAT(registry_->Unload("a", false, kAlice), IsOk());
  EXPECT_EQ(used_bytes(), 0u);
}

}  // namespace
}  // namespace datasetd
