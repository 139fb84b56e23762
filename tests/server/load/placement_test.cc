#include "server/load/placement.h"

#include <atomic>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/load/field_writer.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

class PlacementTest : public ::testing::Test {
 protected:
  PlacementTest() {
    for (int i = 0; i < 4; ++i) {
      devices_.push_back(
          {std::make_unique<FakeBackend>(FakeBackendOptions{
               .is_host = false, .name = absl::StrCat("cuda:", i)}),
           std::make_unique<MemoryBudget>(4000)});
    }
  }

  PlacementRequest Request(PlacementKind kind, int num_devices,
                           v1::Residency residency = v1::RESIDENCY_DEVICE,
                           int64_t device_bytes = 0) {
    PlacementRequest request = {.residency = residency,
                                .device_bytes = device_bytes,
                                .pinned = &pinned_};
    request.devices.kind = kind;
    for (int i = 0; i < num_devices; ++i) {
      request.devices.devices.push_back(&devices_[i]);
    }
    return request;
  }

  // 10 samples of 96 bytes and of 4.
  static LoadPlan Plan() {
    LoadPlan plan;
    plan.num_samples = 10;
    plan.resident_bytes = 1000;
    plan.fields.resize(2);
    plan.fields[0].resident = {.name = "image", .shape = {96}};
    plan.fields[1].resident = {
        .name = "label", .dtype = Dtype::kFloat32, .shape = {}};
    return plan;
  }
  // 10 images of 8x8 at most, of 1 byte a pixel, 320 bytes together.
  static LoadPlan PackedPlan() {
    LoadPlan plan;
    plan.num_samples = 10;
    plan.resident_bytes = 320 + 160;
    plan.fields.resize(1);
    plan.fields[0].resident = {.name = "image",
                               .shape = {kAnyExtent, kAnyExtent, 1},
                               .is_image = true,
                               .largest = {8, 8},
                               .num_pixels = 300,
                               .packed_bytes = 320};
    return plan;
  }

  std::vector<ServedDevice> devices_;
  MemoryBudget pinned_{4000};
};

TEST_F(PlacementTest, OneDeviceHasAllByDefault) {
  const Placement placement =
      PlanPlacement(Request(PlacementKind::kOne, 1), Plan(), {});
  EXPECT_TRUE(placement.is_whole());
  ASSERT_EQ(placement.parts.size(), 1u);
  EXPECT_EQ(placement.parts[0].size_bytes, 1000);
  EXPECT_EQ(placement.residency, v1::RESIDENCY_DEVICE);
}

TEST_F(PlacementTest, ASplitIsOfWholeSamples) {
  const Placement placement = PlanPlacement(
      Request(PlacementKind::kOne, 1, v1::RESIDENCY_SPLIT, 399), Plan(), {});
  EXPECT_FALSE(placement.is_whole());
  EXPECT_EQ(placement.residency, v1::RESIDENCY_SPLIT);
  ASSERT_EQ(placement.parts.size(), 2u);
  EXPECT_EQ(placement.parts[0].device, &devices_[0]);
  EXPECT_THAT(placement.parts[0].field_bytes, ElementsAre(3 * 96, 3 * 4));
  EXPECT_EQ(placement.parts[1].device, nullptr);
  EXPECT_THAT(placement.parts[1].field_bytes, ElementsAre(7 * 96, 7 * 4));
  EXPECT_EQ(placement.resident_bytes(), 1000);
}

TEST_F(PlacementTest, ASplitThatHoldsAllIsTheDevices) {
  const Placement placement = PlanPlacement(
      Request(PlacementKind::kOne, 1, v1::RESIDENCY_SPLIT, 1000), Plan(), {});
  EXPECT_TRUE(placement.is_whole());
  EXPECT_EQ(placement.residency, v1::RESIDENCY_DEVICE);
}

TEST_F(PlacementTest, PinnedIsAllOfTheHosts) {
  const Placement placement = PlanPlacement(
      Request(PlacementKind::kEach, 3, v1::RESIDENCY_PINNED), Plan(), {});
  EXPECT_EQ(placement.residency, v1::RESIDENCY_PINNED);
  ASSERT_EQ(placement.parts.size(), 1u);
  EXPECT_EQ(placement.parts[0].device, nullptr);
  const auto infos = placement.Describe();
  ASSERT_EQ(infos.size(), 3u);
  EXPECT_EQ(infos[0].host_bytes(), 1000);
  EXPECT_EQ(infos[1].host_bytes(), 0);
}

TEST_F(PlacementTest, AShardIsEven) {
  const Placement placement =
      PlanPlacement(Request(PlacementKind::kShard, 4), Plan(), {});
  EXPECT_EQ(placement.residency, v1::RESIDENCY_DEVICE);
  ASSERT_EQ(placement.parts.size(), 4u);
  std::vector<int64_t> counts;
  for (const Placement::Part& part : placement.parts) {
    counts.push_back(part.field_bytes[0] / 96);
    EXPECT_EQ(part.field_bytes[1], counts.back() * 4);
  }
  EXPECT_THAT(counts, ElementsAre(2, 3, 2, 3));
}

TEST_F(PlacementTest, AutoTakesWhatTheRoomsAllow) {
  const PlacementRequest request =
      Request(PlacementKind::kOne, 1, v1::RESIDENCY_AUTO);
  EXPECT_TRUE(PlanPlacement(request, Plan(), {1000}).is_whole());
  const Placement split = PlanPlacement(request, Plan(), {500});
  EXPECT_EQ(split.residency, v1::RESIDENCY_SPLIT);
  EXPECT_EQ(split.parts[0].size_bytes, 500);
  EXPECT_EQ(PlanPlacement(request, Plan(), {0}).residency,
            v1::RESIDENCY_PINNED);
}

TEST_F(PlacementTest, AutoReplicasAreOnEachDeviceOrPinned) {
  const PlacementRequest request =
      Request(PlacementKind::kEach, 2, v1::RESIDENCY_AUTO);
  EXPECT_TRUE(PlanPlacement(request, Plan(), {1000, 1000}).is_replicated);
  const Placement pinned = PlanPlacement(request, Plan(), {1000, 999});
  EXPECT_FALSE(pinned.is_replicated);
  EXPECT_EQ(pinned.residency, v1::RESIDENCY_PINNED);
}

TEST_F(PlacementTest, RoomsLeaveAPartToFeeds) {
  const PlacementRequest request =
      Request(PlacementKind::kShard, 2, v1::RESIDENCY_AUTO);
  const auto reservation =
      devices_[1].budget->Reserve(MemoryKind::kSlab, 0, 500, "slab");
  ASSERT_THAT(reservation, IsOk());
  LoadPlan large = Plan();
  large.num_samples = 75;
  large.resident_bytes = 7500;
  EXPECT_THAT(RoomsOf(request, large, 0, {}),
              ElementsAre(4000 - 1000, 4000 - 1000 - 500));
  EXPECT_THAT(RoomsOf(Request(PlacementKind::kOne, 1), large, 0, {}),
              IsEmpty());
}

TEST_F(PlacementTest, WhatFitsTakesThePartOfFeeds) {
  LoadPlan plan = Plan();
  plan.num_samples = 40;
  plan.resident_bytes = 4000;
  const PlacementRequest request =
      Request(PlacementKind::kOne, 1, v1::RESIDENCY_AUTO);
  EXPECT_THAT(RoomsOf(request, plan, 0, {}), ElementsAre(4000));
  EXPECT_TRUE(
      PlanPlacement(request, plan, RoomsOf(request, plan, 0, {})).is_whole());
  plan.num_samples = 41;
  plan.resident_bytes = 4100;
  const Placement split =
      PlanPlacement(request, plan, RoomsOf(request, plan, 0, {}));
  EXPECT_EQ(split.residency, v1::RESIDENCY_SPLIT);
  EXPECT_EQ(split.parts[0].size_bytes, 3000);
}

TEST_F(PlacementTest, PackedSamplesHaveRoomForTheBorder) {
  const Placement placement =
      PlanPlacement(Request(PlacementKind::kShard, 2), PackedPlan(), {});
  ASSERT_EQ(placement.parts.size(), 2u);
  EXPECT_THAT(placement.parts[0].field_bytes, ElementsAre(160));
  EXPECT_THAT(placement.parts[1].field_bytes, ElementsAre(160 + 64));
}

TEST_F(PlacementTest, WhatIsRefused) {
  using absl::StatusCode::kFailedPrecondition;
  using absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(
      CheckPlacement(Request(PlacementKind::kOne, 1, v1::RESIDENCY_SPLIT)),
      StatusIs(kInvalidArgument, HasSubstr("'split' needs it")));
  EXPECT_THAT(
      CheckPlacement(Request(PlacementKind::kOne, 1, v1::RESIDENCY_PINNED, 5)),
      StatusIs(kInvalidArgument, HasSubstr("belongs to no other")));
  EXPECT_THAT(
      CheckPlacement(Request(PlacementKind::kOne, 1, v1::RESIDENCY_MAPPED)),
      StatusIs(kInvalidArgument, HasSubstr("is not for cuda:0")));
  EXPECT_THAT(
      CheckPlacement(Request(PlacementKind::kEach, 2, v1::RESIDENCY_SPLIT, 5)),
      StatusIs(kInvalidArgument, HasSubstr("not for replicas")));
  // A fake device has no peers.
  EXPECT_THAT(CheckPlacement(Request(PlacementKind::kShard, 2)),
              StatusIs(kFailedPrecondition,
                       HasSubstr("cuda:0 cannot read the memory of cuda:1")));
  PlacementRequest none = Request(PlacementKind::kOne, 1, v1::RESIDENCY_PINNED);
  none.pinned = nullptr;
  EXPECT_THAT(CheckPlacement(none), StatusIs(kFailedPrecondition));
}

// Chunks cross borders, of samples and of extents.
TEST_F(PlacementTest, ExtentsEndWhereSamplesDo) {
  Placement placement;
  placement.parts = {{.device = &devices_[0], .field_bytes = {64}},
                     {.device = nullptr, .field_bytes = {80}},
                     {.device = &devices_[1], .field_bytes = {96}}};
  std::vector<FieldMemory> memory;
  std::vector<uint8_t> bytes(176);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(i);
  }
  FieldWriter writer;
  const std::atomic<bool> is_cancelled = false;
  ASSERT_THAT(
      writer.Allocate(placement, 1, devices_[0].backend.get(), 0, is_cancelled),
      IsOk());
  const auto stream = devices_[0].backend->CreateStream(nullptr);
  ASSERT_THAT(stream, IsOk());
  // Samples of 48, 48, 48, 32 and 48 bytes; the second and third are the same.
  const std::vector<RaggedSample> samples = {{0}, {48}, {48}, {96}, {128}};
  const auto all = absl::MakeConstSpan(bytes);
  const auto places = absl::MakeConstSpan(samples);
  ASSERT_THAT(
      writer.Append(0, all.subspan(0, 128), places.subspan(0, 4), **stream),
      IsOk());
  ASSERT_THAT(writer.Append(0, all.subspan(128), places.subspan(4), **stream),
              IsOk());
  ASSERT_THAT(writer.Await(), IsOk());
  ASSERT_THAT((*stream)->Synchronize(), IsOk());
  memory = writer.TakeMemory();
  const std::vector<Extent>& extents = memory[0].extents();
  ASSERT_EQ(extents.size(), 3u);
  EXPECT_EQ(extents[0].end_bytes, 48);
  EXPECT_EQ(extents[1].offset_bytes, 48);
  EXPECT_EQ(extents[1].end_bytes, 128);
  EXPECT_EQ(extents[2].end_bytes, 176);
  EXPECT_EQ(&memory[0].At(48), &extents[1]);
  EXPECT_EQ(&memory[0].At(127), &extents[1]);
  EXPECT_FALSE(memory[0].IsWholeOn(*devices_[0].backend));
  FieldReader reader({});
  std::vector<uint8_t> read(bytes.size());
  ASSERT_THAT(reader.Read(memory[0], 0, 176, read.data()), IsOk());
  EXPECT_EQ(read, bytes);
  std::fill(read.begin(), read.end(), 0);
  ASSERT_THAT(reader.Read(memory[0], 40, 100, read.data()), IsOk());
  EXPECT_TRUE(std::equal(read.begin(), read.begin() + 100, bytes.begin() + 40));
}

}  // namespace
}  // namespace datasetd
