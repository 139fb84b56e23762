#include "server/dataset/device_list.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/gpu_uuid.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_backend.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

std::array<uint8_t, 16> Uuid(uint8_t first, uint8_t last) {
  std::array<uint8_t, 16> uuid = {};
  uuid.front() = first;
  uuid.back() = last;
  return uuid;
}

DeviceTable Table(int num_gpus, bool has_host = false) {
  std::vector<ServedDevice> devices;
  if (has_host) {
    devices.push_back({std::make_unique<FakeBackend>(
                           FakeBackendOptions{.is_host = true, .name = "cpu"}),
                       std::make_unique<MemoryBudget>(1 << 20)});
  }
  for (int i = 0; i < num_gpus; ++i) {
    devices.push_back({std::make_unique<FakeBackend>(FakeBackendOptions{
                           .is_host = false,
                           .name = absl::StrCat("cuda:", i),
                           .uuid = Uuid(0xA0, static_cast<uint8_t>(0x10 + i))}),
                       std::make_unique<MemoryBudget>(1 << 20)});
  }
  return DeviceTable(std::move(devices));
}

std::string Found(DeviceTable& table, const std::string& text) {
  const absl::StatusOr<DevicePlacement> found = FindDevices(table, text);
  return found.ok() ? found->Text() : std::string(found.status().message());
}

TEST(ParseDeviceListTest, KindsAndNames) {
  const struct {
    const char* text;
    PlacementKind kind;
    std::vector<std::string> names;
  } kCases[] = {
      {"", PlacementKind::kOne, {}},
      {"cpu", PlacementKind::kOne, {"cpu"}},
      {"cuda:12", PlacementKind::kOne, {"cuda:12"}},
      {"GPU-0a1B-", PlacementKind::kOne, {"GPU-0a1B-"}},
      {"each", PlacementKind::kEach, {}},
      {"cuda:2,cuda:0", PlacementKind::kEach, {"cuda:2", "cuda:0"}},
      {"cuda:2,GPU-ff", PlacementKind::kEach, {"cuda:2", "GPU-ff"}},
      {"shard", PlacementKind::kShard, {}},
      {"shard:cuda:0,cuda:1", PlacementKind::kShard, {"cuda:0", "cuda:1"}},
      {"shard:cuda:0", PlacementKind::kShard, {"cuda:0"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.text);
    const absl::StatusOr<DeviceList> list = ParseDeviceList(c.text);
    ASSERT_THAT(list, IsOk());
    EXPECT_EQ(list->kind, c.kind);
    EXPECT_EQ(list->names, c.names);
  }
}

TEST(ParseDeviceListTest, AnythingElseIsRefused) {
  for (const char* text : {"gpu",
                           "cuda",
                           "cuda:",
                           "cuda:x",
                           "cuda:1234",
                           "cuda:-1",
                           "cuda:0,",
                           ",cuda:0",
                           "cuda:0,,cuda:1",
                           "cuda:0, cuda:1",
                           "GPU-",
                           "GPU-xyz",
                           "each:cuda:0",
                           "each,cuda:0",
                           "shard:",
                           "shards",
                           "shard,cuda:0",
                           "shard:each",
                           "cuda:0;cuda:1",
                           "Each"}) {
    EXPECT_THAT(
        ParseDeviceList(text),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(absl::StrCat("'", text, "'")),
                       HasSubstr("is none of cpu, cuda:N, GPU-UUID, a list"))));
  }
}

TEST(FindDevicesTest, ListsOfTheSameDevicesHaveOneText) {
  DeviceTable table = Table(3, /*has_host=*/true);
  EXPECT_EQ(Found(table, ""), "cpu");
  EXPECT_EQ(Found(table, "cuda:1"), "cuda:1");
  EXPECT_EQ(Found(table, "each"), "cuda:0,cuda:1,cuda:2");
  EXPECT_EQ(Found(table, "cuda:2,cuda:0"), "cuda:0,cuda:2");
  EXPECT_EQ(Found(table, "cuda:2,GPU-a0000000-0000-0000-0000-000000000010"),
            "cuda:0,cuda:2");
  EXPECT_EQ(Found(table, "shard"), "shard:cuda:0,cuda:1,cuda:2");
  EXPECT_EQ(Found(table, "shard:cuda:1,cuda:0"), "shard:cuda:0,cuda:1");
}

TEST(FindDevicesTest, OneDeviceIsNoList) {
  for (const bool is_gpu : {false, true}) {
    DeviceTable table = Table(is_gpu ? 1 : 0, /*has_host=*/!is_gpu);
    for (const char* text : {"", "each", "shard"}) {
      const absl::StatusOr<DevicePlacement> found = FindDevices(table, text);
      ASSERT_THAT(found, IsOk());
      EXPECT_EQ(found->kind, PlacementKind::kOne);
      EXPECT_THAT(found->devices, ElementsAre(&table.first()));
    }
  }
}

TEST(FindDevicesTest, ErrorsNameTheDevice) {
  DeviceTable table = Table(2);
  EXPECT_THAT(FindDevices(table, "cuda:0,cuda:3"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("device 'cuda:3' is not served"),
                             HasSubstr("it has: cuda:0, cuda:1"))));
  EXPECT_THAT(FindDevices(table, "GPU-b"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("device 'GPU-b' is not served"),
                             HasSubstr("cuda:0 (GPU-a0000000-0000-0000-0000-"
                                       "000000000010)"))));
  EXPECT_THAT(FindDevices(table, "cuda:1,cuda:1"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("names cuda:1 twice")));
  EXPECT_THAT(FindDevices(table, "GPU-A0"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("the beginning of several UUIDs"),
                             HasSubstr("cuda:0 (GPU-a0000000"),
                             HasSubstr("cuda:1 (GPU-a0000000"),
                             HasSubstr("write more of it"))));
}

TEST(GpuUuidTest, TextAndBeginning) {
  const std::string uuid(
      "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef", 16);
  const std::string text = GpuUuidText(uuid, false);
  EXPECT_EQ(text, "GPU-01234567-89ab-cdef-0123-456789abcdef");
  EXPECT_EQ(GpuUuidText(uuid, true),
            "MIG-01234567-89ab-cdef-0123-456789abcdef");
  EXPECT_THAT(GpuUuidText(uuid.substr(1), false), IsEmpty());
  EXPECT_TRUE(GpuUuidHasPrefix(text, text));
  EXPECT_TRUE(GpuUuidHasPrefix(text, "GPU-01234567-89AB"));
  EXPECT_TRUE(GpuUuidHasPrefix(text, "MIG-0"));
  EXPECT_FALSE(GpuUuidHasPrefix(text, "GPU-"));
  EXPECT_FALSE(GpuUuidHasPrefix(text, "GPU-1"));
  EXPECT_FALSE(GpuUuidHasPrefix(text, text + "0"));
  EXPECT_FALSE(GpuUuidHasPrefix(text, "cuda:0"));
  EXPECT_FALSE(GpuUuidHasPrefix("", "GPU-0"));
}

}  // namespace
}  // namespace datasetd
