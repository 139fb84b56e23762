#include "server/readers/archives/shard_files.h"

#include <cstdint>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/readers/reader.h"
#include "tests/server/readers/deflate.h"
#include "tests/server/readers/memory_file_system.h"
#include "tests/testing/dataset_specs.h"
#include "tests/testing/status_matchers.h"

namespace datasetd::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kMib = 1 << 20;

// Random bytes, which deflate leaves as many, and zeros.
std::string Packed(size_t num_random, size_t num_zeros) {
  std::mt19937 random(7);
  std::string text(num_random, '\0');
  for (char& c : text) c = static_cast<char>(random());
  text.resize(num_random + num_zeros);
  return Deflate(text, kGzip);
}

// Returns the inflated size of the second of two shards; the first is plain.
absl::StatusOr<int64_t> Inflate(const std::string& packed,
                                const std::string& limit = "") {
  MemoryFileSystem files;
  files.Write("/s0", "plain");
  files.Write("/s1", packed);
  v1::DatasetSpec spec = SpecOf("webdataset", "/s{0..1}");
  if (!limit.empty()) SetOption(spec, "max_inflated_bytes", limit);
  const auto shards = ShardFiles::Open(spec, {files});
  if (!shards.ok()) return shards.status();
  const auto plain = shards->OpenOne(0);
  EXPECT_THAT(plain, IsOk());
  EXPECT_EQ((*plain)->info().size_bytes, 5);
  const auto file = shards->OpenOne(1);
  if (!file.ok()) return file.status();
  return (*file)->info().size_bytes;
}

TEST(ShardFilesTest, ASmallShardMayInflateTo64Mib) {
  EXPECT_THAT(Inflate(Packed(0, 64 * kMib)), IsOkAndHolds(64 << 20));
  const std::string bomb = Packed(0, 64 * kMib + 1);
  ASSERT_LT(bomb.size(), 70'000u);
  EXPECT_THAT(
      Inflate(bomb),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(absl::StrCat("/s1: its ", bomb.size(),
                                            " bytes inflate to more than "
                                            "67108864")),
                     HasSubstr("option max_inflated_bytes"))));
}

TEST(ShardFilesTest, ALargeShardMayInflateTo100TimesItsSize) {
  const std::string right = Packed(kMib, 90 * kMib);
  ASSERT_GT(right.size() * 100, 91 * kMib);
  EXPECT_THAT(Inflate(right), IsOkAndHolds(91 << 20));
  const std::string bomb = Packed(kMib, 120 * kMib);
  ASSERT_LT(bomb.size() * 100, 121 * kMib);
  EXPECT_THAT(Inflate(bomb),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat("inflate to more than ",
                                              bomb.size() * 100))));
}

TEST(ShardFilesTest, TheOptionIsTheLimit) {
  const std::string packed = Packed(10, 90);
  EXPECT_THAT(Inflate(packed, "100"), IsOkAndHolds(100));
  EXPECT_THAT(Inflate(packed, "99"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("inflate to more than 99, the limit of "
                                 "option max_inflated_bytes")));
  const std::string bomb = Packed(0, 65 * kMib);
  EXPECT_THAT(Inflate(bomb, absl::StrCat(65 * kMib)), IsOkAndHolds(65 << 20));
  EXPECT_THAT(Inflate(bomb, "9223372036854775807"), IsOkAndHolds(65 << 20));
  for (const char* const wrong : {"0", "-1", "1e9", "9223372036854775808"}) {
    EXPECT_THAT(Inflate(packed, wrong),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(absl::StrCat(
                             "option max_inflated_bytes is '", wrong, "'"))));
  }
}

}  // namespace
}  // namespace datasetd::testing
