#include "server/devices/failure_watch.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "cuda/backend/device_failure.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/dataset/device_list.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

DeviceTable Table() {
  std::vector<ServedDevice> devices;
  for (int i = 0; i < 3; ++i) {
    devices.push_back(
        {.backend = std::make_unique<FakeBackend>(FakeBackendOptions{
             .is_host = false, .name = absl::StrCat("cuda:", i)}),
         .budget = std::make_unique<MemoryBudget>(1 << 20)});
  }
  return DeviceTable(std::move(devices));
}

absl::Status FailureOf(const std::string& device) {
  return DeviceFailure(absl::InternalError(absl::StrCat(device, " broke")),
                       device);
}

class FailureWatchTest : public ::testing::Test {
 protected:
  void Start() {
    watch_ = std::make_unique<FailureWatch>(
        &devices_,
        [this](ServedDevice& device) {
          MutexLock lock(&mutex_);
          failed_.push_back(device.name());
        },
        [this](const absl::Status& failure) {
          MutexLock lock(&mutex_);
          last_.emplace_back(failure.message());
        });
  }

  DeviceTable devices_ = Table();
  Mutex mutex_;
  std::vector<std::string> failed_;
  std::vector<std::string> last_;
  std::unique_ptr<FailureWatch> watch_;
};

TEST_F(FailureWatchTest, EachDeviceFailsOnceAndTheLastEndsAll) {
  Start();
  watch_->Report(FailureOf("cuda:1"));
  EXPECT_TRUE(devices_.devices()[1].health->has_failed());
  watch_->Report(FailureOf("cuda:1"));
  watch_->Report(FailureOf("cuda:0"));
  EXPECT_TRUE(devices_.IsServing());
  EXPECT_THAT(last_, IsEmpty());
  watch_->Report(FailureOf("cuda:2"));
  EXPECT_FALSE(devices_.IsServing());
  EXPECT_THAT(last_, ElementsAre("cuda:2 broke"));
  watch_.reset();
  // Each on a thread of its own.
  EXPECT_THAT(failed_, UnorderedElementsAre("cuda:1", "cuda:0"));
}

TEST_F(FailureWatchTest, OfAnUnknownDeviceNothingCanBeKept) {
  Start();
  watch_->Report(DeviceFailure(absl::InternalError("broke")));
  watch_->Report(FailureOf("cuda:9"));
  EXPECT_THAT(last_, ElementsAre("broke", "cuda:9 broke"));
  watch_.reset();
  EXPECT_THAT(failed_, IsEmpty());
}

TEST_F(FailureWatchTest, ManyThreadsReportOneFailure) {
  Start();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { watch_->Report(FailureOf("cuda:2")); });
  }
  for (std::thread& thread : threads) thread.join();
  watch_.reset();
  EXPECT_THAT(failed_, ElementsAre("cuda:2"));
}

TEST_F(FailureWatchTest, TheHandlerHearsOfTheDevice) {
  Start();
  SetDeviceFailureHandler(
      [this](const absl::Status& failure) { watch_->Report(failure); });
  EXPECT_TRUE(IsDeviceFailure(FailureOf("cuda:0")));
  SetDeviceFailureHandler(nullptr);
  EXPECT_EQ(FailedDevice(FailureOf("cuda:1")), "cuda:1");
  watch_.reset();
  EXPECT_THAT(failed_, ElementsAre("cuda:0"));
}

TEST_F(FailureWatchTest, AFailedDeviceIsRefusedByNameAndLeftOutOfEach) {
  devices_.devices()[1].health->Fail("it broke");
  EXPECT_EQ(FindDevices(devices_, "each")->Text(), "cuda:0,cuda:2");
  EXPECT_EQ(FindDevices(devices_, "shard")->Text(), "shard:cuda:0,cuda:2");
  for (const char* text : {"cuda:1", "cuda:0,cuda:1", "shard:cuda:1,cuda:2"}) {
    EXPECT_THAT(
        FindDevices(devices_, text),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("device cuda:1 (GPU-0000"),
                       HasSubstr("has failed: it broke. To use it again "
                                 "restart the daemon; till then use cuda:0 or "
                                 "cuda:2"))));
  }
  devices_.devices()[0].health->Fail("it broke");
  EXPECT_THAT(FindDevices(devices_, ""),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  devices_.devices()[2].health->Fail("it broke");
  EXPECT_THAT(FindDevices(devices_, "each"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("till then nothing is served")));
  EXPECT_THAT(devices_.CheckServes(Table().devices()[0]), IsOk());
}

}  // namespace
}  // namespace datasetd
