// Only calls that need the memory of a dataset wait for the cache's copy of it.

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/cache/dataset_cache.h"
#include "server/registry/dataset_registry.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/faulty_backend.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::FaultyBackend;
using ::datasetd::testing::FaultyStream;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SourceGate;
using ::datasetd::testing::TempDir;
using ::testing::ElementsAre;

constexpr Caller kAlice = {.session_id = 1, .uid = 1000, .pid = 10};
constexpr Caller kBob = {.session_id = 2, .uid = 1001, .pid = 20};
constexpr int64_t kNumSamples = 100;  // of one byte

// The first copy to the host, which is the cache's, hangs until `may_end`, and
// cannot be cut short.
struct HangingCopy {
  std::atomic<bool> is_first = true;
  absl::Notification has_begun;
  absl::Notification is_cancelled;
  absl::Notification may_end;
};

class HangingStream : public FaultyStream {
 public:
  HangingStream(std::unique_ptr<Stream> stream, HangingCopy* copy)
      : FaultyStream(std::move(stream)), copy_(copy) {}

  absl::Status CopyToHost(uint8_t* to, const uint8_t* from,
                          size_t size_bytes) override {
    if (copy_->is_first.exchange(false)) {
      hangs_ = true;
      copy_->has_begun.Notify();
      copy_->may_end.WaitForNotification();
    }
    return FaultyStream::CopyToHost(to, from, size_bytes);
  }
  void Cancel() override {
    if (hangs_ && !copy_->is_cancelled.HasBeenNotified()) {
      copy_->is_cancelled.Notify();
    }
  }

 private:
  HangingCopy* const copy_;
  std::atomic<bool> hangs_ = false;
};

class HangingBackend : public FaultyBackend {
 public:
  explicit HangingBackend(HangingCopy* copy)
      : FaultyBackend(CreateHostBackend({.num_threads = 1})), copy_(copy) {}

  using FaultyBackend::CreateStream;
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      std::function<void()> on_done, const StreamOptions& options) override {
    auto stream = backend().CreateStream(std::move(on_done), options);
    if (!stream.ok()) return stream;
    return std::make_unique<HangingStream>(*std::move(stream), copy_);
  }

 private:
  HangingCopy* const copy_;
};

class RegistryWaitsTest : public ::testing::Test {
 protected:
  RegistryWaitsTest() {
    std::vector<ServedDevice> devices(1);
    devices[0].backend = std::make_unique<HangingBackend>(&copy_);
    devices[0].budget = std::make_unique<MemoryBudget>(3 * kNumSamples);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    auto directory = OpenStoreDirectory(parent_.File("cache"));
    EXPECT_THAT(directory, IsOk());
    auto cache = DatasetCache::Open(
        *std::move(directory), {.total_bytes = 1 << 30},
        [](const char*, uint32_t, const std::string&, const absl::Status&) {});
    EXPECT_THAT(cache, IsOk());
    cache_ = *std::move(cache);
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{.cache = cache_.get()}, devices_.get(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan>)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          return std::make_unique<FakeSource>(kNumSamples, 1, spec.path(), 7,
                                              &gate_);
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
  }
  ~RegistryWaitsTest() override {
    if (!copy_.may_end.HasBeenNotified()) copy_.may_end.Notify();
    registry_.reset();
    cache_.reset();
  }

  void LoadAndAwait(const std::string& name, const Caller& caller) {
    ASSERT_THAT(testing::Load(*registry_, NamedSpec(name), caller), IsOk());
    const auto info = testing::AwaitLoaded(*registry_, name, absl::Seconds(30));
    ASSERT_THAT(info, IsOk());
    EXPECT_EQ(info->state, DatasetState::kReady) << info->error;
  }
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const DatasetInfo& info : registry_->List()) {
      names.push_back(info.spec->name());
    }
    return names;
  }

  TempDir parent_;
  HangingCopy copy_;
  SourceGate gate_;
  FakeClock clock_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetCache> cache_;
  std::unique_ptr<DatasetRegistry> registry_;
};

TEST_F(RegistryWaitsTest, AHangingCopyDelaysNobodyButWhoNeedsItsMemory) {
  LoadAndAwait("a", kAlice);
  copy_.has_begun.WaitForNotification();
  LoadAndAwait("b", kBob);
  std::thread unloader([&] {
    EXPECT_THAT(registry_->Unload("a", /*force=*/false, kAlice), IsOk());
  });
  copy_.is_cancelled.WaitForNotification();
  // The unload waits, and nothing else does.
  EXPECT_THAT(Names(), ElementsAre("b"));
  EXPECT_THAT(registry_->Hold("b", kBob), IsOk());
  EXPECT_THAT(registry_->Use("b", kBob), IsOk());
  LoadAndAwait("c", kBob);
  // A load that needs the memory waits for it, and is not refused.
  absl::Notification is_loaded;
  std::thread loader([&] {
    LoadAndAwait("d", kBob);
    is_loaded.Notify();
  });
  EXPECT_THAT(Names(), ::testing::IsSupersetOf({"b", "c"}));
  EXPECT_FALSE(is_loaded.HasBeenNotified());
  EXPECT_THAT(registry_->Hold("c", kBob), IsOk());
  copy_.may_end.Notify();
  unloader.join();
  loader.join();
  EXPECT_THAT(Names(), ElementsAre("b", "c", "d"));
}

TEST_F(RegistryWaitsTest, AnEvictionThatWaitsLeavesTheOthersAlone) {
  LoadAndAwait("a", kAlice);
  copy_.has_begun.WaitForNotification();
  LoadAndAwait("b", kBob);
  LoadAndAwait("c", kBob);
  registry_->ReleaseSession(kAlice.session_id);
  std::thread loader([&] { LoadAndAwait("d", kAlice); });
  copy_.is_cancelled.WaitForNotification();
  EXPECT_THAT(Names(), ElementsAre("b", "c", "d"));
  EXPECT_THAT(registry_->Hold("b", kBob), IsOk());
  EXPECT_THAT(registry_->Release("b", kBob), IsOk());
  copy_.may_end.Notify();
  loader.join();
  EXPECT_THAT(Names(), ElementsAre("b", "c", "d"));
}

}  // namespace
}  // namespace datasetd
