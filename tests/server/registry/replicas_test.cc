// Datasets on several devices: one name, one fate, and each feed its replica.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/registry/dataset_registry.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/registry_calls.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SourceGate;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr Caller kAlice = {.session_id = 1, .uid = 1000, .pid = 10};
constexpr int64_t kNumSamples = 100;  // of a byte

class ReplicasTest : public ::testing::Test {
 protected:
  ReplicasTest() {
    std::vector<ServedDevice> devices(3);
    for (size_t i = 0; i < devices.size(); ++i) {
      devices[i].backend = std::make_unique<FakeBackend>(FakeBackendOptions{
          .is_host = false, .name = absl::StrCat("cuda:", i)});
      devices[i].budget = std::make_unique<MemoryBudget>(250);
    }
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    registry_ = std::make_unique<DatasetRegistry>(
        DatasetRegistry::Options{}, devices_.get(),
        [this](const v1::DatasetSpec& spec, const std::shared_ptr<SourceScan>&)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          DATASETD_RETURN_IF_ERROR(opening_.Pass(0));
          return std::make_unique<FakeSource>(kNumSamples, 1, spec.path(),
                                              /*fill=*/7, &gate_);
        },
        &clock_, [](DatasetEvent, const DatasetInfo&, const Caller&) {});
  }
  ~ReplicasTest() override {
    gate_.Open();
    opening_.Open();
  }

  absl::StatusOr<std::shared_ptr<LoadCall>> Begin(const std::string& name,
                                                  const std::string& device) {
    v1::DatasetSpec spec = NamedSpec(name);
    spec.set_device(device);
    return testing::Load(*registry_, std::move(spec), kAlice);
  }
  DatasetInfo Await(const std::string& name) {
    const auto info = testing::AwaitLoaded(*registry_, name, absl::Seconds(30));
    EXPECT_THAT(info, IsOk());
    return *info;
  }
  void Load(const std::string& name, const std::string& device) {
    ASSERT_THAT(Begin(name, device), IsOk());
    ASSERT_EQ(Await(name).state, DatasetState::kReady);
    clock_.Advance(absl::Seconds(1));
  }
  std::vector<uint64_t> Used() const {
    std::vector<uint64_t> used;
    for (const ServedDevice& device : devices_->devices()) {
      used.push_back(device.budget->used_bytes());
    }
    return used;
  }
  std::string DeviceOf(const std::string& name, const std::string& device) {
    const auto use = registry_->Use(name, kAlice, device);
    return use.ok() ? use->dataset()->backend().info().name
                    : std::string(use.status().message());
  }
  void Fail(size_t device) {
    devices_->devices()[device].health->Fail("it broke");
    registry_->FailDevice(devices_->devices()[device]);
  }

  SourceGate gate_;
  SourceGate opening_;
  FakeClock clock_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetRegistry> registry_;
};

TEST_F(ReplicasTest, ItIsReadOnceAndLiesOnEach) {
  Load("a", "cuda:2,cuda:0");
  const int num_reads = gate_.num_reads();
  EXPECT_THAT(Used(), ElementsAre(100, 0, 100));
  const DatasetInfo info = Await("a");
  EXPECT_EQ(info.dataset.device(), "cuda:0,cuda:2");
  EXPECT_EQ(info.dataset.resident_bytes(), 100);
  ASSERT_THAT(info.dataset.placements(), SizeIs(2));
  EXPECT_EQ(info.dataset.placements()[1].device(), "cuda:2");
  EXPECT_EQ(info.dataset.placements()[1].device_bytes(), 100);
  Load("b", "cuda:1");
  EXPECT_EQ(gate_.num_reads(), 2 * num_reads);
  ASSERT_THAT(registry_->Unload("a", /*force=*/false, kAlice), IsOk());
  EXPECT_THAT(Used(), ElementsAre(0, 100, 0));
}

TEST_F(ReplicasTest, APushIsTheSameWhereItsWordsMeanThoseDevices) {
  const auto push = [&](const std::string& name, const std::string& device) {
    v1::DatasetSpec spec = NamedSpec(name);
    spec.set_format("push");
    spec.clear_path();
    spec.set_device(device);
    auto source =
        std::make_unique<FakeSource>(kNumSamples, 1, "", /*fill=*/7, &gate_);
    return registry_->Push(
        spec, std::move(source), kAlice,
        {.cancel = [] {},
         .receive_digests = [] { return std::vector<Digest>(); }});
  };
  ASSERT_THAT(push("a", "cuda:0,cuda:2"), IsOk());
  for (const char* const device : {"", "cuda:2,cuda:0"}) {
    EXPECT_THAT(push("a", device), IsOk());
  }
  for (const char* const device : {"cuda:0", "each"}) {
    EXPECT_THAT(push("a", device),
                StatusIs(absl::StatusCode::kAlreadyExists,
                         HasSubstr("'a' is on cuda:0,cuda:2, and the push")));
  }
  Fail(1);
  EXPECT_THAT(push("a", "each"), IsOk());
  EXPECT_THAT(Used(), ElementsAre(100, 0, 100));
}

TEST_F(ReplicasTest, AFeedTakesTheReplicaThatItAsksFor) {
  Load("a", "cuda:0,cuda:2");
  EXPECT_EQ(DeviceOf("a", ""), "cuda:0");
  EXPECT_EQ(DeviceOf("a", "cuda:0"), "cuda:0");
  EXPECT_EQ(DeviceOf("a", "cuda:2"), "cuda:2");
  EXPECT_THAT(
      DeviceOf("a", "cuda:1"),
      AllOf(HasSubstr("dataset 'a' is not on cuda:1 (GPU-0000"),
            HasSubstr("; it is on cuda:0 (GPU-"), HasSubstr(", cuda:2 (GPU-")));
  EXPECT_THAT(DeviceOf("a", "GPU-77"), HasSubstr("is not on GPU-77; it is on"));
}

// While another load had its name.
TEST_F(ReplicasTest, AFailureThatComesBackHasTheFeedsThatItStillHas) {
  Load("a", "cuda:0");
  std::optional<DatasetUse> use = *registry_->Use("a", kAlice);
  Fail(0);
  opening_.Close();
  opening_.FailWith(absl::NotFoundError("no such file"));
  v1::DatasetSpec spec = NamedSpec("a");
  spec.set_device("cuda:1");
  const auto call = registry_->BeginLoad(spec, kAlice);
  ASSERT_THAT(call, IsOk());
  use.reset();
  opening_.Open();
  EXPECT_THAT((*call)->Await(absl::Seconds(30)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such file")));
  EXPECT_EQ(Await("a").state, DatasetState::kFailed);
  EXPECT_THAT(registry_->Unload("a", /*force=*/false, kAlice), IsOk());
  EXPECT_THAT(registry_->List(), SizeIs(0));
}

TEST_F(ReplicasTest, ADeviceWithTooLittleEvictsNothingOnTheOthers) {
  Load("old", "cuda:0");
  ASSERT_THAT(registry_->Release("old", kAlice), IsOk());
  Load("second", "cuda:0");
  Load("held", "cuda:1");
  Load("held2", "cuda:1");
  EXPECT_THAT(Begin("a", "each"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("dataset 'a' on cuda:1 needs 100 bytes"),
                             HasSubstr("and 50 bytes of the memory budget of "
                                       "250 bytes are free"))));
  EXPECT_THAT(Used(), ElementsAre(200, 200, 0));
  // Where there is room it is made, on every device.
  Load("a", "cuda:0,cuda:2");
  EXPECT_THAT(Used(), ElementsAre(200, 200, 100));
  EXPECT_THAT(testing::AwaitLoaded(*registry_, "old", absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(ReplicasTest, AFailedDeviceTakesWithItWhatIsNowhereElse) {
  Load("both", "cuda:0,cuda:1");
  Load("alone", "cuda:0");
  Load("other", "cuda:1");
  auto use = registry_->Use("alone", kAlice);
  ASSERT_THAT(use, IsOk());
  Fail(0);
  EXPECT_EQ(Await("both").state, DatasetState::kReady);
  EXPECT_EQ(Await("both").dataset.placements()[0].error(), "it broke");
  EXPECT_EQ(Await("both").dataset.placements()[1].error(), "");
  EXPECT_EQ(Await("other").state, DatasetState::kReady);
  EXPECT_EQ(Await("alone").state, DatasetState::kFailed);
  EXPECT_THAT(Await("alone").error,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("device cuda:0 (GPU-"),
                             HasSubstr("has failed: it broke"),
                             HasSubstr("use cuda:1 or cuda:2"))));
  EXPECT_EQ(DeviceOf("both", ""), "cuda:1");
  EXPECT_THAT(DeviceOf("both", "cuda:0"), HasSubstr("has failed: it broke"));
  EXPECT_THAT(DeviceOf("alone", ""), HasSubstr("has failed: it broke"));
  EXPECT_FALSE(use->IsReady());
  // The feed's memory goes with the feed.
  EXPECT_THAT(Used(), ElementsAre(200, 200, 0));
  use->Reset();
  EXPECT_THAT(Used(), ElementsAre(100, 200, 0));
  for (const char* device : {"", "cuda:0", "cuda:0,cuda:2"}) {
    EXPECT_THAT(Begin("new", device),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("has failed: it broke")));
  }
  ASSERT_THAT(registry_->Unload("other", /*force=*/false, kAlice), IsOk());
  Load("alone", "each");
  EXPECT_EQ(Await("alone").dataset.device(), "cuda:1,cuda:2");
  EXPECT_EQ(Await("alone").spec->device(), "each");
  Fail(1);
  EXPECT_EQ(Await("both").state, DatasetState::kFailed);
  EXPECT_EQ(Await("alone").state, DatasetState::kReady);
}

TEST_F(ReplicasTest, ALoadFailsWithItsDevice) {
  gate_.Close();
  ASSERT_THAT(Begin("a", "cuda:1,cuda:2"), IsOk());
  ASSERT_THAT(Begin("b", "cuda:0"), IsOk());
  Fail(2);
  gate_.Open();
  EXPECT_EQ(Await("b").state, DatasetState::kReady);
  const DatasetInfo info = Await("a");
  EXPECT_EQ(info.state, DatasetState::kFailed);
  EXPECT_THAT(info.error, StatusIs(absl::StatusCode::kFailedPrecondition,
                                   HasSubstr("device cuda:2 (GPU-")));
  EXPECT_THAT(Used(), ElementsAre(100, 0, 0));
}

}  // namespace
}  // namespace datasetd
