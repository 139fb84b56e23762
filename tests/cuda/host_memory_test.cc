#include "cuda/backend/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::datasetd::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostMemoryTest, SomethingIsAvailable) {
  const auto available = AvailableHostBytes();
  ASSERT_THAT(available, IsOk());
  EXPECT_GT(*available, size_t{1} << 20);
}

TEST(HostMemoryTest, ControlGroupsLimitWhatIsAvailable) {
  const TempDir dir;
  const std::string list = dir.File("list");
  const std::string groups = dir.File("groups");
  std::filesystem::create_directories(groups + "/above/own");
  const auto write = [](const std::string& path, const char* text) {
    std::ofstream(path) << text;
  };
  write(list, "4:cpu,pids:/other\n0::/above/own\n");
  const auto room = [&] { return ReadControlGroups(list, groups).room_bytes; };
  constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  EXPECT_EQ(room(), kNoLimit);
  write(groups + "/above/own/memory.max", "max\n");
  write(groups + "/above/own/memory.current", "600\n");
  EXPECT_EQ(room(), kNoLimit);
  write(groups + "/above/own/memory.max", "1000\n");
  EXPECT_EQ(room(), 400);
  // Memory of files is taken back when it is wanted.
  write(groups + "/above/own/memory.stat",
        "anon 200\nactive_file 150\ninactive_file 50\nshmem 200\n");
  EXPECT_EQ(room(), 600);
  write(groups + "/above/memory.max", "5000\n");
  write(groups + "/above/memory.current", "4900\n");
  EXPECT_EQ(room(), 100);
  write(groups + "/above/memory.current", "5001\n");
  EXPECT_EQ(room(), 0);
  write(groups + "/above/memory.current", "4900\n");
  // That of a container, which sees no groups above its own.
  write(groups + "/memory.max", "7000\n");
  write(groups + "/memory.current", "6970\n");
  EXPECT_EQ(room(), 30);
  write(list, "0::/\n");
  EXPECT_EQ(room(), 30);
  EXPECT_EQ(ReadControlGroups(list, groups).limit_bytes, 7000);
  EXPECT_EQ(ReadControlGroups(dir.File("none"), groups).room_bytes, kNoLimit);
}

TEST(HostMemoryTest, ControlGroupsOfVersion1LimitWhatIsAvailable) {
  const TempDir dir;
  const std::string list = dir.File("list");
  const std::string groups = dir.File("groups");
  std::filesystem::create_directories(groups + "/memory/above/own");
  const auto write = [](const std::string& path, const char* text) {
    std::ofstream(path) << text;
  };
  write(list, "5:cpuacct,memory:/above/own\n0::/above/own\n");
  const auto read = [&] { return ReadControlGroups(list, groups); };
  EXPECT_TRUE(read().has_hidden);
  write(groups + "/memory/cgroup.procs", "");
  EXPECT_FALSE(read().has_hidden);
  const std::string own = groups + "/memory/above/own";
  write(own + "/memory.limit_in_bytes", "1000\n");
  write(own + "/memory.usage_in_bytes", "900\n");
  EXPECT_EQ(read().limit_bytes, 1000);
  EXPECT_EQ(read().room_bytes, 100);
  write(own + "/memory.stat",
        "inactive_file 1\nactive_file 2\nhierarchical_memory_limit 1000\n"
        "total_inactive_file 30\ntotal_active_file 40\n");
  EXPECT_EQ(read().room_bytes, 170);
  // That of a container, which sees no groups above its own; no limit is a
  // large number.
  write(groups + "/memory/memory.limit_in_bytes", "500\n");
  write(groups + "/memory/memory.usage_in_bytes", "480\n");
  write(own + "/memory.limit_in_bytes", "9223372036854771712\n");
  write(list, "5:memory:/docker/0123\n");
  EXPECT_EQ(read().limit_bytes, 500);
  EXPECT_EQ(read().room_bytes, 20);
}

TEST(HostMemoryTest, AGroupThatCannotBeReadIsHidden) {
  const TempDir dir;
  const std::string list = dir.File("list");
  const std::string groups = dir.File("groups");
  std::filesystem::create_directories(groups);
  const auto is_hidden = [&](const char* text) {
    std::ofstream(list) << text;
    return ReadControlGroups(list, groups).has_hidden;
  };
  EXPECT_TRUE(is_hidden("0::/\n"));
  EXPECT_FALSE(is_hidden("3:cpu:/a\n"));
  EXPECT_TRUE(is_hidden("3:memory:/a\n0::/\n"));
  std::ofstream(groups + "/cgroup.procs") << "";
  EXPECT_FALSE(is_hidden("0::/a\n"));
}

TEST(HostMemoryTest, WithoutADescriptorItIsSaidWhatToDo) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto available = AvailableHostBytes();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(available, StatusIs(absl::StatusCode::kResourceExhausted,
                                  HasSubstr("LimitNOFILE=")));
}

TEST(HostMemoryTest, AskingForMoreThanIsAvailableNamesBothNumbers) {
  // Overcommit alone would grant this.
  const size_t too_much = AvailableHostBytes().value() + (size_t{64} << 30);
  const auto is_exhausted =
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr(absl::StrCat(too_much, " bytes")),
                     HasSubstr("bytes are available")));
  EXPECT_THAT(AllocateHostDeviceMemory(too_much), is_exhausted);
  EXPECT_THAT(AllocatePlainHostMemory(too_much), is_exhausted);
  EXPECT_THAT(AllocateMemfd(too_much), is_exhausted);
}

TEST(HostMemoryTest, MemfdIsSealedInSizeButWritable) {
  const auto memory = AllocateMemfd(1);
  ASSERT_THAT(memory, IsOk());
  const int fd = (*memory)->file_descriptor();
  EXPECT_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(HostMemoryTest, HolePunchedByAnImporterReadsAsZero) {
  const auto memory = AllocateMemfd(1);
  ASSERT_THAT(memory, IsOk());
  uint8_t* data = (*memory)->data();
  data[0] = 1;
  data[4096] = 2;
  ASSERT_EQ(fallocate((*memory)->file_descriptor(),
                      FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
            0);
  EXPECT_EQ(data[0], 0);
  EXPECT_EQ(data[4096], 2);
  data[0] = 3;
  EXPECT_EQ(data[0], 3);
}

int64_t FileBytes(int fd) {
  struct stat status = {};
  EXPECT_EQ(fstat(fd, &status), 0);
  return int64_t{512} * status.st_blocks;
}

TEST(HostMemoryTest, WhatAnImporterKeepsIsEmptyOnceRevoked) {
  auto memory = AllocateMemfd(3 << 20);
  ASSERT_THAT(memory, IsOk());
  memset((*memory)->data(), 7, (*memory)->size_bytes());
  // An importer that keeps both, as a client can that says it keeps nothing.
  const FileDescriptor kept(dup((*memory)->file_descriptor()));
  auto* const mapped =
      static_cast<uint8_t*>(mmap(nullptr, 4 << 20, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_POPULATE, kept.get(), 0));
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(mapped[(4 << 20) - 1], 7);
  EXPECT_EQ(FileBytes(kept.get()), 4 << 20);
  (*memory)->Revoke();
  memory->reset();
  EXPECT_EQ(FileBytes(kept.get()), 0);
  EXPECT_EQ(mapped[0], 0);
  EXPECT_EQ(mapped[(4 << 20) - 1], 0);
  munmap(mapped, 4 << 20);
}

TEST(HostMemoryTest, WithoutRevokeAnImportersPagesOutliveTheMemory) {
  auto memory = AllocateMemfd(1);
  ASSERT_THAT(memory, IsOk());
  (*memory)->data()[5] = 7;
  const FileDescriptor kept(dup((*memory)->file_descriptor()));
  memory->reset();
  uint8_t byte = 0;
  ASSERT_EQ(pread(kept.get(), &byte, 1, 5), 1);
  EXPECT_EQ(byte, 7);
}

}  // namespace
}  // namespace datasetd
