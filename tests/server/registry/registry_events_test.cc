// Random events, from several threads, against what must hold of a registry:
// each load ends once, each call is answered, and nothing stays behind. That no
// event comes where it cannot is checked by the registry, which ends the
// process.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/registry/dataset_registry.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/storm.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::IsFull;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SourceGate;
using ::datasetd::testing::Storm;
using ::datasetd::testing::With;
using ::testing::SizeIs;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr Caller kEarlier = {.session_id = Caller::kEarlierSession,
                             .uid = 1001};
constexpr int kNumThreads = 4;
constexpr int kNumNames = 3;
constexpr int kNumEvents = 200;  // of each thread
// No event keeps the registry's thread from the others for longer.
[[maybe_unused]] constexpr absl::Duration kMaxEvent = absl::Milliseconds(5);

// What the registry reports of each name.
class Model {
 public:
  void Observe(DatasetEvent event, const std::string& name) {
    bool& is_loading = is_loading_[name];
    switch (event) {
      case DatasetEvent::kLoading:
      case DatasetEvent::kLoadingAgain:
        EXPECT_FALSE(is_loading) << name;
        is_loading = true;
        break;
      case DatasetEvent::kReady:
        EXPECT_TRUE(is_loading) << name;
        is_loading = false;
        break;
      case DatasetEvent::kFailed:
        is_loading = false;
        break;
      case DatasetEvent::kUnloaded:
      case DatasetEvent::kEvicted:
        EXPECT_FALSE(is_loading) << name;
        break;
      case DatasetEvent::kUnloadAsked:
        break;
    }
  }

 private:
  std::map<std::string, bool> is_loading_;
};

class World {
 public:
  explicit World(uint32_t seed) : seed_(seed) {
    std::vector<ServedDevice> devices(2);
    for (size_t i = 0; i < devices.size(); ++i) {
      devices[i].backend = std::make_unique<FakeBackend>(FakeBackendOptions{
          .is_host = false, .name = absl::StrCat("cuda:", i)});
      devices[i].budget = std::make_unique<MemoryBudget>(250);
    }
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{.texts = &texts_,
                                 .max_suspect_wait = absl::Milliseconds(2),
                                 .max_push_wait = absl::Milliseconds(2),
                                 .evict_unused_after = absl::Seconds(20),
                                 .max_unused_percent = 80,
                                 .evict_interval = absl::Milliseconds(3)},
        devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          std::this_thread::yield();
          const int number = num_opened_.fetch_add(1);
          if (number % 11 == 5) return absl::NotFoundError("no such file");
          return std::make_unique<FakeSource>(
              100, 1, number % 13 == 7 ? "changed" : spec.path(), 7,
              number % 7 == 3 ? &failing_ : &gate_);
        },
        &clock_,
        [this](DatasetEvent event, const DatasetInfo& info, const Caller&) {
          model_.Observe(event, info.spec->name());
        });
    failing_.FailWith(absl::DataLossError("torn"));
  }

  void Run(int num_events) {
    std::vector<RestoredDataset> restored;
    for (int i = 0; i < kNumNames; ++i) {
      restored.push_back({.spec = NamedSpec(absl::StrCat(i)),
                          .owner = kEarlier,
                          .is_suspect = i > 0});
    }
    registry_->Restore(std::move(restored));
    std::vector<std::thread> threads;
    for (int i = 0; i < kNumThreads; ++i) {
      threads.emplace_back([this, i, num_events] { RunThread(i, num_events); });
    }
    for (std::thread& thread : threads) thread.join();
    if (seed_ % 4 == 0) return;  // the registry ends with what it has
    for (int i = 0; i < kNumNames; ++i) {
      const std::string name = absl::StrCat(i);
      testing::AwaitLoaded(*registry_, name, kLong).IgnoreError();
      // What it had replaced may come back.
      while (
          registry_->Unload(name, true, Caller{.is_privileged = true}).ok()) {
      }
    }
    EXPECT_THAT(registry_->List(), SizeIs(0));
    EXPECT_EQ(texts_.used_bytes(), 0u);
    for (const ServedDevice& device : devices_->devices()) {
      EXPECT_EQ(device.budget->used_bytes(), 0u);
    }
    const DatasetRegistry::Totals totals = registry_->Summarize().totals;
    EXPECT_EQ(totals.num_ready + totals.num_failed + totals.num_cancelled,
              totals.num_loads);
    longest_ = registry_->Summarize().longest_event;
  }

  absl::Duration longest() const { return longest_; }

 private:
  void RunThread(int number, int num_events) {
    std::mt19937 random(seed_ * kNumThreads + static_cast<uint32_t>(number));
    const auto draw = [&](int end) { return static_cast<int>(random() % end); };
    const Caller self = {.session_id = static_cast<uint64_t>(number) + 1,
                         .uid = 1000 + static_cast<uint32_t>(number) % 3,
                         .is_privileged = number == 3};
    std::vector<std::shared_ptr<LoadCall>> calls;
    std::vector<DatasetUse> uses;
    for (int i = 0; i < num_events; ++i) {
      const std::string name = absl::StrCat(draw(kNumNames));
      v1::DatasetSpec spec = NamedSpec(name);
      if (draw(8) == 0) spec.set_private_(true);
      if (draw(4) == 0) spec.set_device("cuda:0,cuda:1");
      switch (draw(14)) {
        case 0:
        case 1:
        case 2: {
          auto call = registry_->BeginLoad(spec, self);
          if (call.ok()) calls.push_back(*std::move(call));
          break;
        }
        case 3:
          if (!calls.empty()) {
            // It is answered, or waits for who is slower.
            (void)calls[draw(static_cast<int>(calls.size()))]->Await(
                absl::Milliseconds(draw(3)));
          }
          break;
        case 4:
          if (!calls.empty()) {
            const auto call = calls.begin() + draw(int(calls.size()));
            (*call)->Cancel();
            calls.erase(call);
          }
          break;
        case 5:
          (void)registry_->Hold(name, self);
          break;
        case 6:
          (void)registry_->Release(name, self);
          break;
        case 7:
          registry_->ReleaseSession(self.session_id);
          break;
        case 8: {
          auto use = registry_->Use(name, self);
          if (use.ok()) uses.push_back(*std::move(use));
          break;
        }
        case 9:
          if (!uses.empty()) uses.erase(uses.begin());
          break;
        case 10:
          (void)registry_->Unload(name, draw(2) == 0, self);
          break;
        case 11:
        case 12: {
          spec.set_format("push");
          spec.clear_path();
          DatasetRegistry::PushCalls push = {
              .cancel = [] {}, .is_given_up = [] { return true; }};
          if (draw(2) == 0) {
            push.receive_digests = [] { return std::vector<Digest>(); };
          }
          (void)registry_->Push(
              spec,
              std::make_unique<FakeSource>(100, 1, "", 7,
                                           draw(5) == 0 ? &failing_ : &gate_),
              self, std::move(push));
          break;
        }
        case 13:
          clock_.Advance(absl::Seconds(1));
          registry_->MakeRoom("cuda:0", 100 + draw(150));
          if (seed_ % 3 == 0 && number == 0 && i > num_events / 2) FailDevice();
          break;
      }
    }
    uses.clear();
    // Every call gets an answer, unless its load has still to be cancelled.
    for (const auto& call : calls) {
      if (draw(2) == 0) call->Cancel();
    }
    for (const auto& call : calls) {
      const auto info = call->Await(kLong);
      EXPECT_FALSE(info.ok() && info->state == DatasetState::kLoading);
    }
    registry_->ReleaseSession(self.session_id);
  }

  void FailDevice() {
    const ServedDevice& device = devices_->devices()[1];
    if (device.health->has_failed()) return;
    device.health->Fail("it broke");
    registry_->FailDevice(device);
  }

  const uint32_t seed_;
  SourceGate gate_;
  SourceGate failing_;
  std::atomic<int> num_opened_ = 0;
  FakeClock clock_;
  Model model_;
  absl::Duration longest_;
  MemoryBudget texts_{1 << 20};
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> registry_;
};

TEST(RegistryEventsTest, EachLoadEndsOnceAndNothingStays) {
  const Storm storm =
      Storm::FromEnvironment(/*num_seeds=*/IsFull() ? 2000 : 10);
  absl::Duration longest;
  const uint32_t num_seeds = storm.Run([&](uint32_t seed) {
    World world(seed);
    world.Run(kNumEvents);
    longest = std::max(longest, world.longest());
  });
  std::printf("%s: %lld events\n", storm.Describe(num_seeds).c_str(),
              static_cast<long long>(num_seeds) * kNumThreads * kNumEvents);
  RecordProperty("longest_event", absl::FormatDuration(longest));
#if !defined(ABSL_HAVE_THREAD_SANITIZER)
  EXPECT_LT(longest, kMaxEvent);
#endif
}

}  // namespace
}  // namespace datasetd
