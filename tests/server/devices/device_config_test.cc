#include "server/devices/device_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(DeviceConfigTest, ADeviceHasTheBudgetThatIsConfigured) {
  v1::Config config;
  config.add_devices("cpu");
  config.set_host_threads(1);
  config.set_memory_budget_mib(3);
  config.mutable_user_limits()->set_max_slab_mib(1);
  const auto devices = OpenDevices(config);
  ASSERT_THAT(devices, IsOk());
  ASSERT_THAT(*devices, SizeIs(1));
  const ServedDevice& device = devices->front();
  EXPECT_EQ(device.name(), "cpu");
  EXPECT_EQ(device.budget->total_bytes(), 3u << 20);
  EXPECT_THAT(
      device.budget->Reserve(MemoryKind::kSlab, 1000, (1 << 20) + 1, "slab"),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1000")));
  // A limit that is set binds everybody.
  EXPECT_THAT(device.budget->Reserve(MemoryKind::kSlab, 0, (1 << 20) + 1,
                                     "slab", {.is_privileged = true}),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(DeviceConfigTest, ABudgetBeyondTheControlGroupIsToldAtTheStart) {
  const auto warning = [](uint64_t mib, bool is_configured,
                          const ControlGroupLimits& limits) {
    return BudgetWarning("memory_budget_mib", mib << 20, is_configured, limits);
  };
  const ControlGroupLimits limits = {.limit_bytes = 400 << 20};
  EXPECT_EQ(warning(400, true, limits), "");
  EXPECT_EQ(warning(401, true, {}), "");
  EXPECT_THAT(warning(401, true, limits),
              AllOf(HasSubstr("memory_budget_mib is 401 MiB"),
                    HasSubstr("allows 400 MiB"), HasSubstr("MemoryMax=")));
  for (const bool is_configured : {false, true}) {
    EXPECT_THAT(warning(1, is_configured, {.has_hidden = true}),
                HasSubstr("cannot be read below /sys/fs/cgroup: set "
                          "memory_budget_mib below it"));
  }
}

TEST(DeviceConfigTest, AUserHasHalfOfWhatIsNotConfigured) {
  v1::Config config;
  config.add_devices("cpu");
  config.set_memory_budget_mib(4);
  const auto devices = OpenDevices(config);
  ASSERT_THAT(devices, IsOk());
  MemoryBudget& budget = *devices->front().budget;
  for (const MemoryKind kind :
       {MemoryKind::kDataset, MemoryKind::kSlab, MemoryKind::kScratch}) {
    EXPECT_THAT(budget.Reserve(kind, 1000, 2 << 20, "a"), IsOk());
    EXPECT_THAT(budget.Reserve(kind, 1000, (2 << 20) + 1, "a"),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("that one user may have")));
    EXPECT_THAT(budget.Reserve(kind, 0, 4 << 20, "a", {.is_privileged = true}),
                IsOk());
  }
  // 0 is set, and no limit.
  config.mutable_user_limits()->set_max_slab_mib(0);
  config.mutable_user_limits()->set_max_scratch_mib(0);
  const auto unlimited = OpenDevices(config);
  ASSERT_THAT(unlimited, IsOk());
  for (const MemoryKind kind : {MemoryKind::kSlab, MemoryKind::kScratch}) {
    EXPECT_THAT(unlimited->front().budget->Reserve(kind, 1000, 4 << 20, "a"),
                IsOk());
  }
}

TEST(DeviceConfigTest, WithoutABudgetItIsMostOfWhatIsFree) {
  v1::Config config;
  config.add_devices("cpu");
  const auto devices = OpenDevices(config);
  ASSERT_THAT(devices, IsOk());
  const ServedDevice& device = devices->front();
  const size_t free_bytes = device.backend->info().free_bytes;
  EXPECT_GT(device.budget->total_bytes(), free_bytes / 2);
  EXPECT_LT(device.budget->total_bytes(), free_bytes);
}

TEST(DeviceConfigTest, ANameThatIsNoDeviceIsNamed) {
  v1::Config config;
  config.add_devices("tpu");
  EXPECT_THAT(OpenDevices(config),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tpu")));
}

TEST(DeviceConfigTest, ExportsAreAllOrOne) {
  v1::Config config;
  config.set_slab_export("auto");
  auto allowed = AllowedExports(config);
  ASSERT_THAT(allowed, IsOk());
  EXPECT_THAT(*allowed, IsEmpty());
  config.set_slab_export("cuda_vmm_fd");
  allowed = AllowedExports(config);
  ASSERT_THAT(allowed, IsOk());
  EXPECT_THAT(*allowed, ElementsAre(ExportKind::kCudaVmmFd));
  config.set_slab_export("memfd");
  EXPECT_THAT(AllowedExports(config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("slab_export: 'memfd'"),
                             HasSubstr("cuda_ipc_handle"))));
}

}  // namespace
}  // namespace datasetd
