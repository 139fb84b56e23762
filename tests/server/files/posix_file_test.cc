#include "server/files/posix_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdint>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/files/errno_status.h"
#include "tests/testing/status_matchers.h"

namespace datasetd {
namespace {

using ::datasetd::testing::StatusIs;
using ::testing::HasSubstr;

TEST(PosixFileTest, AReadThatFailsIsNoDamageOfTheFile) {
  // Nothing is mapped at address 0: EIO.
  const PosixFile file(FileDescriptor(open("/proc/self/mem", O_RDONLY)),
                       {.path = "/d/a", .size_bytes = 8});
  uint8_t byte = 0;
  EXPECT_THAT(file.ReadAt(0, absl::MakeSpan(&byte, 1)),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("/d/a: reading at offset 0: Input/output")));
}

TEST(ReadErrorCodeTest, OnlyWhatTheFileSystemFindsDamagedIs) {
  EXPECT_EQ(ReadErrorCode(EIO), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReadErrorCode(ESTALE), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReadErrorCode(ETIMEDOUT), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReadErrorCode(ENOMEM), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadErrorCode(EMFILE), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadErrorCode(EBADMSG), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadErrorCode(EUCLEAN), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace datasetd
