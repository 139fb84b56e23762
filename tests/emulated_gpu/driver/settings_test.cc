#include "tests/emulated_gpu/driver/settings.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace datasetd::emulated_driver {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::map<std::string, std::string>& Variables() {
  static auto* const variables = new std::map<std::string, std::string>();
  return *variables;
}

const char* Read(const char* name) {
  const auto it = Variables().find(name);
  return it == Variables().end() ? nullptr : it->second.c_str();
}

Settings ReadAll(const std::map<std::string, std::string>& variables,
                 std::string* problem) {
  Variables() = variables;
  return ReadSettings(&Read, problem);
}

Settings MustRead(const std::map<std::string, std::string>& variables) {
  std::string problem;
  const Settings settings = ReadAll(variables, &problem);
  EXPECT_EQ(problem, "");
  return settings;
}

TEST(SettingsTest, OneDeviceByDefault) {
  const Settings settings = MustRead({});
  ASSERT_EQ(settings.devices.size(), 1u);
  EXPECT_EQ(settings.devices[0].memory_bytes, uint64_t{4} << 30);
  EXPECT_EQ(settings.devices[0].compute_major, 9);
  EXPECT_EQ(settings.driver_version, 13000);
  EXPECT_THAT(settings.visible, ElementsAre(0));
}

TEST(SettingsTest, LastValueCountsForTheOtherDevices) {
  const Settings settings =
      MustRead({{"DATASETD_EMULATED_GPU_DEVICES", "3"},
                {"DATASETD_EMULATED_GPU_MEMORY_MIB", "128,256"},
                {"DATASETD_EMULATED_GPU_COMPUTE_CAPABILITY", "7.5"}});
  ASSERT_EQ(settings.devices.size(), 3u);
  EXPECT_EQ(settings.devices[0].memory_bytes, 128u << 20);
  EXPECT_EQ(settings.devices[2].memory_bytes, 256u << 20);
  EXPECT_EQ(settings.devices[2].compute_major, 7);
  EXPECT_EQ(settings.devices[2].compute_minor, 5);
}

// CUDA Programming Guide, "CUDA Environment Variables", CUDA_VISIBLE_DEVICES.
TEST(SettingsTest, VisibleDevicesByIndexAndUuid) {
  const std::string uuids =
      "GPU-11111111-1111-1111-1111-111111111111,"
      "GPU-22222222-2222-2222-2222-222222222222,"
      "GPU-33333333-3333-3333-3333-333333333333";
  const auto visible = [&uuids](const std::string& text) {
    return MustRead({{"DATASETD_EMULATED_GPU_UUIDS", uuids},
                     {"CUDA_VISIBLE_DEVICES", text}})
        .visible;
  };
  EXPECT_THAT(visible("2,0"), ElementsAre(2, 0));
  EXPECT_THAT(visible("GPU-2222"), ElementsAre(1));
  EXPECT_THAT(visible("GPU-33333333-3333-3333-3333-333333333333,0"),
              ElementsAre(2, 0));
  // A device that does not exist hides what stands behind it.
  EXPECT_THAT(visible("1,7,0"), ElementsAre(1));
  EXPECT_THAT(visible("-1"), IsEmpty());
  EXPECT_THAT(visible(""), IsEmpty());
  EXPECT_THAT(visible("GPU-4"), IsEmpty());
}

// MIG User Guide, "CUDA Device Enumeration": one instance only.
TEST(SettingsTest, OneInstanceOfADividedGpu) {
  const Settings settings =
      MustRead({{"DATASETD_EMULATED_GPU_UUIDS",
                 "MIG-11111111-1111-1111-1111-111111111111@"
                 "GPU-22222222-2222-2222-2222-222222222222,"
                 "MIG-33333333-3333-3333-3333-333333333333@"
                 "GPU-22222222-2222-2222-2222-222222222222"},
                {"CUDA_VISIBLE_DEVICES", "MIG-33,0"}});
  EXPECT_THAT(settings.visible, ElementsAre(1));
  EXPECT_EQ(UuidText(settings.devices[1].uuid, true),
            "MIG-33333333-3333-3333-3333-333333333333");
  EXPECT_EQ(UuidText(settings.devices[1].gpu_uuid, false),
            "GPU-22222222-2222-2222-2222-222222222222");
}

TEST(SettingsTest, BadValuesAreNamed) {
  const std::map<std::string, std::string> bad = {
      {"DEVICES", "9"},
      {"MEMORY_MIB", "1"},
      {"COMPUTE_CAPABILITY", "nine"},
      {"UUIDS", "GPU-12"},
      {"ATTRIBUTES", "integrated=1"},
      {"DRIVER_VERSION", "12.4"},
      {"PEERS", "2"},
      {"SEED", "-1"},
  };
  for (const auto& [name, value] : bad) {
    std::string problem;
    ReadAll({{"DATASETD_EMULATED_GPU_" + name, value}}, &problem);
    EXPECT_THAT(problem, HasSubstr("DATASETD_EMULATED_GPU_" + name + " is '" +
                                   value + "', allowed: "));
  }
}

}  // namespace
}  // namespace datasetd::emulated_driver
