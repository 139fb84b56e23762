#include "cuda/host_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::IsOk;
using ::datasetd::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(HostMemoryTest, SomethingIsAvailable) {
  const auto available = AvailableHostBytes();
  ASSERT_THAT(available, IsOk());
  EXPECT_GT(*available, size_t{1} << 20);
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
  EXPECT_EQ(fcntl(fd, F_GET_SEALS),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
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

}  // namespace
}  // namespace datasetd
