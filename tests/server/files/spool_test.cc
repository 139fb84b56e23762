#include "server/files/spool.h"

#include <dirent.h>

#include <string>

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

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()),
                             text.size());
}

std::string Read(const Spool& spool, int64_t offset, size_t size) {
  std::string text(size, '\0');
  const absl::Status status = spool.ReadAt(
      offset, absl::MakeSpan(reinterpret_cast<uint8_t*>(text.data()), size));
  return status.ok() ? text : std::string(status.message());
}

int NumFiles(const std::string& directory) {
  DIR* const stream = opendir(directory.c_str());
  int count = 0;
  while (readdir(stream) != nullptr) ++count;
  closedir(stream);
  return count - 2;  // . and ..
}

class SpoolTest : public ::testing::TestWithParam<bool> {
 protected:
  std::string Directory() const { return GetParam() ? directory_.path() : ""; }

  const TempDir directory_;
};

TEST_P(SpoolTest, ReadsAnywhereWhatWasAppended) {
  SpoolSpace space(Directory(), 100, "key");
  const auto spool = space.Open(/*uid=*/7, /*may_have_all=*/true);
  ASSERT_THAT(spool, IsOk());
  ASSERT_THAT((*spool)->Append(Bytes("one, ")), IsOk());
  ASSERT_THAT((*spool)->Append({}), IsOk());
  ASSERT_THAT((*spool)->Append(Bytes("two")), IsOk());
  EXPECT_EQ((*spool)->size_bytes(), 8);
  EXPECT_EQ(Read(**spool, 0, 8), "one, two");
  EXPECT_EQ(Read(**spool, 5, 3), "two");
  EXPECT_EQ(Read(**spool, 5, 4),
            "spool of a push: reading at offset 8: end of file");
}

TEST_P(SpoolTest, LeavesNoFile) {
  SpoolSpace space(Directory(), 100, "key");
  const auto spool = space.Open(/*uid=*/7, /*may_have_all=*/true);
  ASSERT_THAT(spool, IsOk());
  ASSERT_THAT((*spool)->Append(Bytes("bytes")), IsOk());
  EXPECT_EQ(NumFiles(directory_.path()), 0);
}

TEST_P(SpoolTest, AllShareTheLimit) {
  SpoolSpace space(Directory(), 10, "push_spool_mib");
  auto first = space.Open(/*uid=*/7, /*may_have_all=*/true);
  ASSERT_THAT(first, IsOk());
  const auto second = space.Open(/*uid=*/7, /*may_have_all=*/true);
  ASSERT_THAT(second, IsOk());
  ASSERT_THAT((*first)->Append(Bytes("seven77")), IsOk());
  EXPECT_THAT((*second)->Append(Bytes("four")),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("7 of 10 bytes, and 4 more do not fit"),
                             HasSubstr("push_spool_mib"))));
  EXPECT_EQ((*second)->size_bytes(), 0);
  EXPECT_THAT((*second)->Append(Bytes("333")), IsOk());
  EXPECT_EQ(space.used_bytes(), 10);
  first->reset();
  EXPECT_EQ(space.used_bytes(), 3);
  EXPECT_THAT((*second)->Append(Bytes("four")), IsOk());
}

TEST_P(SpoolTest, OneUserHasHalf) {
  SpoolSpace space(Directory(), 10, "push_spool_mib");
  auto first = space.Open(/*uid=*/7, /*may_have_all=*/false);
  ASSERT_THAT(first, IsOk());
  const auto second = space.Open(/*uid=*/7, /*may_have_all=*/false);
  ASSERT_THAT(second, IsOk());
  const auto other = space.Open(/*uid=*/8, /*may_have_all=*/false);
  ASSERT_THAT(other, IsOk());
  ASSERT_THAT((*first)->Append(Bytes("four")), IsOk());
  EXPECT_THAT((*second)->Append(Bytes("22")),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("take 4 bytes, and 2 more are above "
                                       "half of the 10 bytes"),
                             HasSubstr("push_spool_mib"))));
  EXPECT_THAT((*second)->Append(Bytes("1")), IsOk());
  EXPECT_THAT((*other)->Append(Bytes("five5")), IsOk());
  first->reset();
  EXPECT_THAT((*second)->Append(Bytes("four")), IsOk());
}

TEST_P(SpoolTest, NamesADirectoryThatIsGone) {
  SpoolSpace space("/nonexistent/cache", 10, "key");
  EXPECT_THAT(
      space.Open(/*uid=*/7, /*may_have_all=*/true),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/cache")));
}

INSTANTIATE_TEST_SUITE_P(Places, SpoolTest, ::testing::Bool(),
                         [](const ::testing::TestParamInfo<bool>& info) {
                           return info.param ? "Disk" : "Memory";
                         });

}  // namespace
}  // namespace datasetd
