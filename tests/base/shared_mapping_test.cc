#include "base/shared_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "base/file_descriptor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/huge_pages.h"

namespace datasetd {
namespace {

FileDescriptor MakeMemfd(size_t size_bytes) {
  FileDescriptor file(memfd_create("shared_mapping_test", MFD_CLOEXEC));
  EXPECT_TRUE(file.has_value());
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(size_bytes)), 0);
  return file;
}

size_t AddressSpacePages() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;
}

TEST(SharedMappingTest, MappingsOfAFileShareItsBytes) {
  for (const size_t size : {size_t{1}, kHugePageBytes - 1, kHugePageBytes,
                            3 * kHugePageBytes + 4097}) {
    const FileDescriptor file = MakeMemfd(size);
    const size_t pages_before = AddressSpacePages();
    auto* const one = static_cast<uint8_t*>(MapShared(file.get(), size));
    auto* const other = static_cast<uint8_t*>(MapShared(file.get(), size));
    ASSERT_NE(one, MAP_FAILED) << size;
    ASSERT_NE(other, MAP_FAILED) << size;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(one) % kHugePageBytes, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(other) % kHugePageBytes, 0u);
    one[0] = 3;
    other[size - 1] = 5;
    EXPECT_EQ(other[0], size == 1 ? 5 : 3);
    EXPECT_EQ(one[size - 1], 5);
    // Nothing else of what was reserved is left.
    const auto page = static_cast<size_t>(getpagesize());
    EXPECT_EQ(AddressSpacePages(), pages_before + 2 * ((size - 1) / page + 1));
    EXPECT_EQ(munmap(one, size), 0);
    EXPECT_EQ(munmap(other, size), 0);
    EXPECT_EQ(AddressSpacePages(), pages_before);
  }
}

TEST(SharedMappingTest, FailureSaysWhyAndLeavesNothing) {
  const FileDescriptor file = MakeMemfd(4096);
  const size_t pages_before = AddressSpacePages();
  errno = 0;
  EXPECT_EQ(MapShared(file.get(), SIZE_MAX - 4096), MAP_FAILED);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(MapShared(-1, 4096), MAP_FAILED);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(AddressSpacePages(), pages_before);
}

TEST(SharedMappingTest, HugePagesAreHugeInEveryMapping) {
  constexpr size_t kSize = 4 * kHugePageBytes;
  if (!testing::HasHugePages(kSize)) GTEST_SKIP() << "the system has none now";
  const FileDescriptor file = MakeMemfd(kSize);
  TakeHugePages(file.get(), kSize);
  void* const one = MapShared(file.get(), kSize);
  void* const other = MapShared(file.get(), kSize);
  ASSERT_NE(one, MAP_FAILED);
  ASSERT_NE(other, MAP_FAILED);
  for (const void* const data : {one, other}) {
    EXPECT_EQ(testing::MappingBytes(data, "Rss"), kSize);
    EXPECT_EQ(testing::MappingBytes(data, "ShmemPmdMapped"), kSize);
  }
  // All of it is zero.
  const auto* const bytes = static_cast<const uint8_t*>(one);
  EXPECT_EQ(bytes[0], 0);
  EXPECT_EQ(memcmp(bytes, bytes + 1, kSize - 1), 0);
  munmap(one, kSize);
  munmap(other, kSize);
}

}  // namespace
}  // namespace datasetd
