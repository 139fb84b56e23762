#include "server/devices/device_nodes.h"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

class DeviceNodesTest : public ::testing::Test {
 protected:
  void AddDevice(const std::string& slot, const std::string& vendor,
                 const std::string& device_class) {
    const std::filesystem::path path = directory_.path() / slot;
    std::filesystem::create_directory(path);
    std::ofstream(path / "vendor") << vendor << "\n";
    std::ofstream(path / "class") << device_class << "\n";
  }
  bool HasGpu() const { return HasNvidiaGpu(directory_.path().string()); }

  const testing::TempDir directory_;
};

TEST_F(DeviceNodesTest, AGpuIsADisplayControllerOfNvidias) {
  EXPECT_FALSE(HasGpu());
  AddDevice("0000:00:02.0", "0x8086", "0x030000");  // another's
  AddDevice("0000:01:00.1", "0x10de", "0x040300");  // its sound
  std::filesystem::create_directory(directory_.path() / "0000:00:00.0");
  EXPECT_FALSE(HasGpu());
  AddDevice("0000:81:00.0", "0x10de", "0x030200");
  EXPECT_TRUE(HasGpu());
}

TEST_F(DeviceNodesTest, ABusThatCannotBeReadHasNone) {
  EXPECT_FALSE(HasNvidiaGpu(directory_.File("none")));
  std::ofstream(directory_.File("file")) << "text";
  EXPECT_FALSE(HasNvidiaGpu(directory_.File("file")));
}

TEST_F(DeviceNodesTest, ANodeIsForbiddenByTheDeviceListOrByItsMode) {
  std::map<std::string, int> errors = {{"/dev/nvidiactl", ENOENT},
                                       {"/dev/nvidia-uvm", ENOENT}};
  const auto find = [&] {
    const ForbiddenNode node = FindForbiddenNode(
        [&](const std::string& path) { return errors.at(path); });
    return std::pair(node.path, node.error);
  };
  EXPECT_EQ(find(), std::pair(std::string(), 0));
  errors["/dev/nvidiactl"] = 0;
  EXPECT_EQ(find(), std::pair(std::string(), 0));
  errors["/dev/nvidia-uvm"] = EPERM;
  EXPECT_EQ(find(), std::pair(std::string("/dev/nvidia-uvm"), EPERM));
  errors["/dev/nvidiactl"] = EPERM;
  EXPECT_EQ(find(), std::pair(std::string("/dev/nvidiactl"), EPERM));
  // A new start does not help then.
  errors["/dev/nvidia-uvm"] = EACCES;
  EXPECT_EQ(find(), std::pair(std::string("/dev/nvidia-uvm"), EACCES));
}

TEST_F(DeviceNodesTest, ADeniedNodeIsToldWithItsModeAndGroup) {
  const std::string path = directory_.File("node");
  std::ofstream(path) << "";
  ASSERT_EQ(chmod(path.c_str(), 0660), 0);
  const group* const own = getgrgid(getegid());
  const std::string name =
      own == nullptr ? std::to_string(getegid()) : own->gr_name;
  EXPECT_EQ(DescribeMode(path),
            path +
                " may not be opened by this process: its mode is 0660, its "
                "group " +
                name + "; add SupplementaryGroups=" + name +
                " to the service's unit, or the user to that group");
  EXPECT_EQ(DescribeMode(directory_.File("none")),
            directory_.File("none") + " may not be opened by this process");
  // As root, a group may have no name.
  if (chown(path.c_str(), static_cast<uid_t>(-1), 54321) != 0) return;
  EXPECT_THAT(DescribeMode(path),
              ::testing::HasSubstr("SupplementaryGroups=54321"));
}

TEST_F(DeviceNodesTest, OpeningTellsErrno) {
  EXPECT_EQ(TryToOpen(directory_.File("none")), ENOENT);
  std::ofstream(directory_.File("file")) << "text";
  EXPECT_EQ(TryToOpen(directory_.File("file")), 0);
  EXPECT_EQ(TryToOpen(directory_.path().string()), EISDIR);
}

}  // namespace
}  // namespace datasetd
