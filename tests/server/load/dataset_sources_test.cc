#include "server/load/dataset_sources.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/host/host_backend.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/fake_source.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::FakeSource;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::NamedSpec;
using ::datasetd::testing::SourceGate;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::With;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class DatasetSourcesTest : public ::testing::Test {
 protected:
  DatasetSourcesTest() {
    std::vector<ServedDevice> devices(1);
    devices[0].backend = CreateHostBackend({.num_threads = 1});
    devices[0].budget = std::make_unique<MemoryBudget>(1000);
    devices_ = std::make_unique<DeviceTable>(std::move(devices));
    sources_ = std::make_unique<DatasetSources>(
        devices_.get(), /*cache=*/nullptr, DecodeBudget::Limits(),
        TransformLimits(),
        [this](const v1::DatasetSpec& spec, std::shared_ptr<SourceScan> scan)
            -> absl::StatusOr<std::unique_ptr<SampleSource>> {
          if (scan->is_cancelled) return absl::CancelledError("not wanted");
          return std::make_unique<FakeSource>(100, 2, spec.path(), 7, &gate_);
        });
  }

  absl::StatusOr<OpenedSource> OpenFiles(v1::DatasetSpec spec,
                                         std::shared_ptr<SourceScan> scan) {
    auto placement = sources_->FindPlacement(spec);
    if (!placement.ok()) return placement.status();
    return sources_->OpenFiles(CheckRequest(std::move(spec)).value(),
                               *std::move(placement),
                               /*uid=*/7, std::move(scan));
  }

  SourceGate gate_;
  std::unique_ptr<DeviceTable> devices_;
  std::unique_ptr<DatasetSources> sources_;
};

TEST_F(DatasetSourcesTest, WhatIsKnownBeforeASampleIsRead) {
  const auto opened = OpenFiles(NamedSpec("a"), std::make_shared<SourceScan>());
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ(&opened->placement.devices.first(), &devices_->first());
  EXPECT_EQ(opened->placement.devices.Text(), "cpu");
  EXPECT_THAT(opened->spec_id, SizeIs(64));
  EXPECT_EQ(opened->plan.resident_bytes, 200);
  EXPECT_EQ(opened->reader->info().num_samples, 100);
  EXPECT_EQ(gate_.num_reads(), 0);
}

TEST_F(DatasetSourcesTest, APushHasNoIdBeforeItsContentIsKnown) {
  const auto opened =
      sources_->OpenPush(CheckRequest(NamedSpec("a")).value(),
                         std::make_unique<FakeSource>(50, 2, "", 7, &gate_));
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT(opened->spec_id, IsEmpty());
  EXPECT_EQ(opened->plan.resident_bytes, 100);
}

TEST_F(DatasetSourcesTest, WithoutACacheAnEarlierPushIsLost) {
  EXPECT_THAT(
      sources_->OpenPushed(CheckRequest(NamedSpec("a")).value(), "00ff", 1000),
      StatusIs(
          absl::StatusCode::kNotFound,
          AllOf(HasSubstr("content hash 00ff"), HasSubstr("push them again"))));
}

TEST_F(DatasetSourcesTest, ErrorsAreTheDevicesOrTheOpeners) {
  const v1::DatasetSpec spec = With(NamedSpec("a"), "device: 'cuda:7'");
  EXPECT_THAT(
      OpenFiles(spec, std::make_shared<SourceScan>()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'cuda:7'")));
  const auto scan = std::make_shared<SourceScan>();
  scan->is_cancelled = true;
  EXPECT_THAT(OpenFiles(NamedSpec("a"), scan),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("not wanted")));
}

}  // namespace
}  // namespace datasetd
