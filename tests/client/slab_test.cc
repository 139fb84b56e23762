#include "client/feed/slab.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "base/shared_mapping.h"
#include "cuda/backend/host_memory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/huge_pages.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::client {
namespace {

using ::datasetd::testing::HasHugePages;
using ::datasetd::testing::IsOk;
using ::datasetd::testing::MappingBytes;
using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

v1::SlabExport Memfd(uint64_t size_bytes) {
  v1::SlabExport slab;
  slab.set_kind(v1::EXPORT_KIND_MEMFD);
  slab.set_size_bytes(size_bytes);
  return slab;
}

TEST(SlabTest, DaemonAndClientMapTheSameHugePages) {
  constexpr size_t kSize = 3 * kHugePageBytes;
  const bool has_huge_pages = HasHugePages(kSize);
  const auto memory = AllocateMemfd(kSize);
  ASSERT_THAT(memory, IsOk());
  auto slab = Slab::Import(Memfd(kSize), (*memory)->file_descriptor());
  ASSERT_THAT(slab, IsOk());
  (*memory)->data()[kSize - 1] = 7;
  EXPECT_EQ(slab->data()[kSize - 1], 7);
  if (!has_huge_pages) GTEST_SKIP() << "the system has no huge pages now";
  EXPECT_EQ(MappingBytes((*memory)->data(), "ShmemPmdMapped"), kSize);
  EXPECT_EQ(MappingBytes(slab->data(), "ShmemPmdMapped"), kSize);
}

TEST(SlabTest, MalformedExportsAreRefused) {
  const auto memory = AllocateMemfd(1);
  ASSERT_THAT(memory, IsOk());
  const int fd = (*memory)->file_descriptor();
  constexpr auto kInternal = absl::StatusCode::kInternal;
  // A daemon could cut these while they are read, which is a SIGBUS.
  const FileDescriptor unsealed(
      memfd_create("slab", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  const FileDescriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  for (const int other : {unsealed.get(), file.get()}) {
    EXPECT_THAT(Slab::Import(Memfd(4096), other),
                StatusIs(kInternal, HasSubstr("not sealed against")));
  }
  EXPECT_THAT(Slab::Import(Memfd(4096), -1),
              StatusIs(kInternal, HasSubstr("without a descriptor")));
  EXPECT_THAT(Slab::Import(Memfd(0), fd),
              StatusIs(kInternal, HasSubstr("2097152 bytes, not 0")));
  EXPECT_THAT(Slab::Import(Memfd(4 << 20), fd),
              StatusIs(kInternal, HasSubstr("2097152 bytes, not 4194304")));
  v1::SlabExport unknown = Memfd(4096);
  unknown.set_kind(static_cast<v1::ExportKind>(77));
  EXPECT_THAT(
      Slab::Import(unknown, fd),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("export kind 77")));
}

}  // namespace
}  // namespace datasetd::client
