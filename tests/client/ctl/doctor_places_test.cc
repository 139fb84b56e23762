// Where the doctor looks for nodes and limits, in trees like /sys and /proc.

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/ctl/doctor/doctor_checks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace datasetd::ctl {
namespace {

using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr pid_t kDaemon = 77;

class DoctorPlacesTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void WriteNode(const std::string& pci, int node, const std::string& cores) {
    Write(absl::StrCat("/sys/bus/pci/devices/", pci, "/numa_node"),
          absl::StrCat(node));
    Write(absl::StrCat("/sys/devices/system/node/node", node, "/cpulist"),
          cores);
  }
  static GpuPlace Gpu(int number, const std::string& pci) {
    return {.name = absl::StrCat("cuda:", number),
            .uuid = absl::StrCat("GPU-", number),
            .pci_address = pci};
  }
  Finding Memory() {
    Findings findings;
    CheckCgroupMemory(kDaemon, root(), &findings);
    EXPECT_THAT(findings, SizeIs(1));
    EXPECT_EQ(findings[0].check, "cgroup memory");
    return findings[0];
  }

  std::string root() const { return root_.path().string(); }

  const TempDir root_;
};

TEST_F(DoctorPlacesTest, EachGpuHasItsNode) {
  WriteNode("0000:3b:00.0", 0, "0-3,8-11");
  WriteNode("0000:af:00.0", 1, "4-7,12-15");
  GpuPlace linked = Gpu(1, "0000:af:00.0");
  linked.num_links = 12;
  Findings findings;
  CheckNodes({Gpu(0, "0000:3b:00.0"), linked}, /*daemon=*/0, root(), &findings);
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].severity, Severity::kOk);
  EXPECT_EQ(findings[0].text,
            "cuda:0 (GPU-0) at 0000:3b:00.0: node 0, cores 0-3,8-11");
  EXPECT_EQ(findings[1].text,
            "cuda:1 (GPU-1) at 0000:af:00.0, 12 NVLinks: node 1, cores "
            "4-7,12-15");
  EXPECT_THAT(findings[1].fix, IsEmpty());
}

TEST_F(DoctorPlacesTest, ADaemonThatMayNotRunOnAGpusNode) {
  WriteNode("0000:3b:00.0", 0, "0-3");
  WriteNode("0000:af:00.0", 1, "4-7");
  Write("/proc/77/status",
        "Name:\tdatasetd\nCpus_allowed:\tc\nCpus_allowed_list:\t2-3");
  Findings findings;
  CheckNodes({Gpu(0, "0000:3b:00.0"), Gpu(1, "0000:af:00.0")}, kDaemon, root(),
             &findings);
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].severity, Severity::kOk);
  EXPECT_EQ(findings[1].severity, Severity::kWarning);
  EXPECT_THAT(findings[1].text,
              HasSubstr("the daemon may run on cores 2-3 only"));
  EXPECT_THAT(findings[1].fix, AllOf(HasSubstr("give it cores of node 1"),
                                     HasSubstr("AllowedCPUs=")));
}

TEST_F(DoctorPlacesTest, NodesThatAreNotKnown) {
  Write("/sys/bus/pci/devices/0000:3b:00.0/numa_node", "-1");
  Findings findings;
  CheckNodes({Gpu(0, "0000:3b:00.0"), Gpu(1, "0000:af:00.0")}, kDaemon, root(),
             &findings);
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[0].severity, Severity::kOk);
  EXPECT_THAT(findings[0].text, HasSubstr("on no node of its own"));
  EXPECT_EQ(findings[1].severity, Severity::kWarning);
  EXPECT_THAT(findings[1].text, HasSubstr("/sys has no such device"));
  EXPECT_THAT(findings[1].fix, HasSubstr("mount /sys"));
}

TEST_F(DoctorPlacesTest, Peers) {
  GpuPlace first = Gpu(0, "0000:3b:00.0");
  GpuPlace second = Gpu(1, "0000:af:00.0");
  first.reads = {false, true};
  second.reads = {true, false};
  Findings findings;
  CheckPeers({first}, &findings);
  EXPECT_THAT(findings, IsEmpty());
  CheckPeers({first, second}, &findings);
  ASSERT_THAT(findings, SizeIs(1));
  EXPECT_EQ(findings[0].severity, Severity::kOk);
  EXPECT_EQ(findings[0].text, "all 2 GPUs read one another's memory");
  second.reads[0] = false;
  CheckPeers({first, second}, &findings);
  ASSERT_THAT(findings, SizeIs(2));
  EXPECT_EQ(findings[1].severity, Severity::kWarning);
  EXPECT_THAT(findings[1].text,
              AllOf(HasSubstr("not read directly: cuda:1 from cuda:0;"),
                    Not(HasSubstr("cuda:0 from cuda:1"))));
  EXPECT_THAT(findings[1].fix, HasSubstr("nvidia-smi topo -p2p r"));
}

TEST_F(DoctorPlacesTest, TheTightestLimitOfVersion2Counts) {
  Write("/proc/77/cgroup", "0::/system.slice/datasetd.service");
  Write("/sys/fs/cgroup/system.slice/datasetd.service/memory.max", "max");
  Write("/sys/fs/cgroup/system.slice/datasetd.service/memory.current",
        "1073741824");
  EXPECT_EQ(Memory().severity, Severity::kOk);
  EXPECT_THAT(Memory().text,
              AllOf(HasSubstr("no limit"), HasSubstr("1.1 GB"),
                    HasSubstr("cgroup v2, /system.slice/datasetd.service")));
  Write("/sys/fs/cgroup/system.slice/memory.max", "4294967296");
  Write("/sys/fs/cgroup/system.slice/memory.current", "2147483648");
  EXPECT_EQ(Memory().severity, Severity::kOk);
  EXPECT_THAT(Memory().text, AllOf(HasSubstr("2.1 GB of 4.3 GB used"),
                                   HasSubstr("(cgroup v2, /system.slice)")));
  Write("/sys/fs/cgroup/system.slice/memory.current", "4294960000");
  EXPECT_EQ(Memory().severity, Severity::kWarning);
  EXPECT_THAT(Memory().fix, HasSubstr("raise MemoryMax="));
}

TEST_F(DoctorPlacesTest, FilePagesAreNotUsedMemory) {
  Write("/proc/77/cgroup", "0::/a");
  Write("/sys/fs/cgroup/a/memory.max", "4000000000");
  Write("/sys/fs/cgroup/a/memory.current", "3900000000");
  Write("/sys/fs/cgroup/a/memory.stat",
        "anon 900000000\nfile 3000000000\nshmem 200000000\n"
        "inactive_file 2000000000\nactive_file 800000000");
  EXPECT_EQ(Memory().severity, Severity::kOk);
  EXPECT_THAT(Memory().text, HasSubstr("1.1 GB of 4.0 GB used"));
  Write("/sys/fs/cgroup/a/memory.stat",
        "inactive_file 100000000\nactive_file 100000000");
  EXPECT_EQ(Memory().severity, Severity::kWarning);
  // The numbers are of different moments.
  Write("/sys/fs/cgroup/a/memory.stat", "inactive_file 5000000000");
  EXPECT_THAT(Memory().text, HasSubstr("0 B of 4.0 GB used"));
}

TEST_F(DoctorPlacesTest, FilePagesOfVersion1IncludeThoseBelow) {
  Write("/proc/77/cgroup", "4:memory:/a");
  Write("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4000000000");
  Write("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "3900000000");
  Write("/sys/fs/cgroup/memory/a/memory.stat",
        "inactive_file 1\nactive_file 1\n"
        "total_inactive_file 2000000000\ntotal_active_file 800000000");
  EXPECT_EQ(Memory().severity, Severity::kOk);
  EXPECT_THAT(Memory().text, HasSubstr("1.1 GB of 4.0 GB used"));
}

TEST_F(DoctorPlacesTest, LimitsOfVersion1) {
  Write("/proc/77/cgroup",
        "5:cpu,cpuacct:/a\n4:memory:/docker/b\n0::/elsewhere");
  Write("/sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes", "1073741824");
  Write("/sys/fs/cgroup/memory/docker/b/memory.usage_in_bytes", "536870912");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "99999999999");
  EXPECT_EQ(Memory().severity, Severity::kOk);
  EXPECT_THAT(Memory().text, AllOf(HasSubstr("536.9 MB of 1.1 GB used"),
                                   HasSubstr("(cgroup v1, /docker/b)")));
}

TEST_F(DoctorPlacesTest, WithoutACgroupNothingLimitsTheDaemon) {
  EXPECT_EQ(Memory().severity, Severity::kOk);
  EXPECT_THAT(Memory().text, HasSubstr("is not to be seen from here"));
  Write("/proc/77/cgroup", "0::/");
  EXPECT_THAT(Memory().text, HasSubstr("no cgroup limits it"));
}

}  // namespace
}  // namespace datasetd::ctl
