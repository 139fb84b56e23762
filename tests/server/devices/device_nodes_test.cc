#include "server/devices/device_nodes.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

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

TEST_F(DeviceNodesTest, ANodeIsForbiddenByEpermAlone) {
  std::map<std::string, int> errors = {{"/dev/nvidiactl", ENOENT},
                                       {"/dev/nvidia-uvm", ENOENT}};
  const auto find = [&] {
    return FindForbiddenNode(
        [&](const std::string& path) { return errors.at(path); });
  };
  EXPECT_EQ(find(), "");
  errors["/dev/nvidiactl"] = 0;
  EXPECT_EQ(find(), "");
  errors["/dev/nvidia-uvm"] = EACCES;  // file mode
  EXPECT_EQ(find(), "");
  errors["/dev/nvidia-uvm"] = EPERM;
  EXPECT_EQ(find(), "/dev/nvidia-uvm");
  errors["/dev/nvidiactl"] = EPERM;
  EXPECT_EQ(find(), "/dev/nvidiactl");
}

TEST_F(DeviceNodesTest, OpeningTellsErrno) {
  EXPECT_EQ(TryToOpen(directory_.File("none")), ENOENT);
  std::ofstream(directory_.File("file")) << "text";
  EXPECT_EQ(TryToOpen(directory_.File("file")), 0);
  EXPECT_EQ(TryToOpen(directory_.path().string()), EISDIR);
}

}  // namespace
}  // namespace datasetd
